"""A generator: a project and a corpus go in; prefixes become cited texts, whole or in a stream."""

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Unpack, overload

from cog.api.refusals import refuse_wrong_settings
from cog.api.stream import Stream, StreamStoppedError
from cog.api.text import Text
from cog.closing import Closing
from cog.decoding.licences import CopyRule
from cog.decoding.request import Request, repeat_request
from cog.decoding.session import open_generator
from cog.decoding.settings import Settings, choose_settings, set_precision
from cog.errors import GenerationError
from cog.index.versions.activation import choose_corpus
from cog.params import load_params
from cog.paths import ProjectPaths
from cog.reading import show
from cog.records import Decoding, Segment


class Generator(Closing):
    """A loaded model and an open index; ``close`` it, or use it in a ``with`` block.

    Texts of several threads are written one call after another.

    :param paths: The project.
    :param corpus_id: The corpus, or several joined with ``+``; None for what is active.
    :param device: ``auto``, ``cpu`` or ``cuda``.
    :param precision: Of the prefix encoder's matrices; None for that of params.yaml.
    :param is_untuned: Whether what ``cog tune`` chose for the index is left out.
    :param rule: Which documents may be copied from.
    """

    def __init__(
        self,
        paths: ProjectPaths,
        corpus_id: str | None,
        *,
        device: str,
        precision: str | None,
        is_untuned: bool,
        rule: CopyRule,
    ) -> None:
        self._paths = paths
        self._is_untuned = is_untuned
        self._lock = threading.Lock()
        self._stack = ExitStack()
        self._is_closed = False
        self.corpus, self._active = choose_corpus(paths, corpus_id)
        with refuse_wrong_settings(GenerationError):
            self._params = set_precision(load_params(paths.params), precision)
        self._generator = self._stack.enter_context(
            open_generator(paths, self._params, corpus_id=corpus_id, device=device, rule=rule)
        )

    def __repr__(self) -> str:
        return f"<cog generator on {self.corpus}{', closed' if self._is_closed else ''}>"

    def close(self) -> None:
        """Close the index; streams end where they are."""
        self._is_closed = True
        with self._lock:  # a stream that is being written ends at its next segment
            self._stack.close()

    def settings(self, **given: Unpack[Settings]) -> Decoding:
        """The settings that a text would be written with, or a ``GenerationError``.

        What is given, else what was tuned for the index, else that of params.yaml.
        """
        return self._choose(given)

    @overload
    def generate(
        self, prefix: str, *, num_return: None = None, **settings: Unpack[Settings]
    ) -> Text: ...

    @overload
    def generate(
        self, prefix: str, *, num_return: int, **settings: Unpack[Settings]
    ) -> list[Text]: ...

    @overload
    def generate(
        self,
        prefix: list[str] | tuple[str, ...],
        *,
        num_return: int | None = None,
        **settings: Unpack[Settings],
    ) -> list[Text]: ...

    def generate(
        self,
        prefix: str | list[str] | tuple[str, ...],
        *,
        num_return: int | None = None,
        **settings: Unpack[Settings],
    ) -> Text | list[Text]:
        """Continue a prefix, which may be empty, or several.

        ``num_return`` texts per prefix have seeds that count up. Settings that are not given are as
        :meth:`settings` says; a prefix or a setting that cannot be used is a ``GenerationError``.
        Gives one text; a list if several prefixes, or a number of texts, were given.
        """
        if num_return is not None and num_return < 1:
            raise GenerationError("num_return must be 1 or more", found=str(num_return))
        decoding = self._choose(settings)
        prefixes = [prefix] if isinstance(prefix, str) else list(prefix)
        requests = [
            request
            for each in prefixes
            for request in repeat_request(Request(_check_prefix(each), decoding), num_return or 1)
        ]
        texts = self._write(requests)
        return texts[0] if isinstance(prefix, str) and num_return is None else texts

    def stream(self, prefix: str, **settings: Unpack[Settings]) -> "Stream":
        """Write one text as :meth:`generate` does; give its segments as soon as they are final.

        The iterator's ``text`` is the whole, once there is one.
        """
        request = Request(_check_prefix(prefix), self._choose(settings))
        self._check_open()
        return Stream(lambda on_segment: self._write([request], on_segment=on_segment)[0])

    def _choose(self, given: Settings) -> Decoding:
        with refuse_wrong_settings(GenerationError):
            settings, _ = choose_settings(
                self._params.generate.decoding,
                self._paths.corpus(self.corpus),
                given,
                is_untuned=self._is_untuned,
                active=self._active,
            )
        return settings

    def _write(
        self, requests: Sequence[Request], *, on_segment: Callable[[Segment], None] | None = None
    ) -> list[Text]:
        def pass_on(_number: int, segment: Segment) -> None:
            if self._is_closed:
                raise StreamStoppedError(
                    "a text must be written to its end", found="a closed generator"
                )
            assert on_segment is not None
            on_segment(segment)

        with self._lock:
            self._check_open()
            generations = self._generator.generate_each(
                requests,
                batch_size=self._params.generate.batch_size,
                on_segment=on_segment and pass_on,
            )
            return [
                Text(each, self._generator.num_unread_tokens(request))
                for request, each in zip(requests, generations, strict=True)
            ]

    def _check_open(self) -> None:
        if self._is_closed:
            raise GenerationError(
                "a generator must be open to write", found="a closed one", run="open another"
            )


def _check_prefix(prefix: object) -> str:
    if not isinstance(prefix, str):
        raise GenerationError("a prefix must be a text", found=show(prefix))
    return prefix
