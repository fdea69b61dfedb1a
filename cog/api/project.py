"""A project: its folder goes in; corpora, what is switched on, and generators come out."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from cog.api.corpus import Corpus
from cog.api.refusals import name_extras, refuse_wrong_settings
from cog.api.tables import Rows, list_pairs, list_scores, make_table
from cog.corpus.listing import list_corpora
from cog.decoding.settings import Settings, set_precision
from cog.errors import EvaluationError
from cog.index.versions.activation import (
    Change,
    Status,
    choose_corpus,
    get_status,
    rollback_corpus,
    switch_corpus,
)
from cog.params import load_params
from cog.paths import ProjectPaths, find_project, settle_torch
from cog.pipeline_file import load_pipeline
from cog.progress import Progress, SilentProgress
from cog.records import Active
from cog.registry import load_active, load_card

if TYPE_CHECKING:
    from pandas import DataFrame

    from cog.api.generator import Generator


def open_project(folder: str | Path = ".") -> "Project":
    """Open the project that a folder is, or lies in.

    If there is none, or it is of another version of cog, it is a ``ProjectError``.
    """
    paths = find_project(Path(folder))
    load_pipeline(paths)
    settle_torch()
    return Project(paths)


class Project:
    """A project: corpora, and which of them is switched on."""

    def __init__(self, paths: ProjectPaths) -> None:
        self._paths = paths

    def __repr__(self) -> str:
        return f"<cog project {self._paths.root}>"

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return self._paths.root

    @property
    def corpora(self) -> list[Corpus]:
        """The corpora that have a card, in the order of their ids."""
        return [Corpus(self._paths, each.id) for each in list_corpora(self._paths)]

    def corpus(self, corpus_id: str) -> Corpus:
        """One corpus; a ``RegistryError`` if it has no card, or the card breaks the schema."""
        return Corpus(self._paths, load_card(self._paths, corpus_id).id)

    @property
    def active(self) -> Active | None:
        """What is switched on: corpus, index and model; None if nothing is."""
        return load_active(self._paths)

    @property
    def status(self) -> Status:
        """What is switched on, whether it is intact, and what to run if not."""
        return get_status(self._paths)

    def switch(self, corpus_id: str, *, index: str | None = None) -> Change:
        """Make a corpus, or several joined with ``+``, and its index the active ones, atomically.

        ``index`` is the digest of a version of it, or the beginning of one; None for the one in
        place. An index that is not there, or does not match, is an ``IndexingError``.
        """
        return switch_corpus(self._paths, corpus_id, index=index)

    def rollback(self) -> Change:
        """Go back to what was active before the last switch; else a ``NothingActiveError``."""
        return rollback_corpus(self._paths)

    @name_extras()
    def generator(
        self,
        corpus_id: str | None = None,
        *,
        device: str = "auto",
        precision: str | None = None,
        untuned: bool = False,
        allow_licences: Sequence[str] = (),
        deny_licences: Sequence[str] = (),
        exclude_documents: Sequence[str] = (),
    ) -> "Generator":
        """Load the model and open an index; close it after use, or use it in a ``with`` block.

        :param corpus_id: The corpus to copy from, or several joined with ``+``; None for what is
            active.
        :param device: ``auto``, ``cpu`` or ``cuda``.
        :param precision: Of the prefix encoder's matrices; None for that of params.yaml.
        :param untuned: Whether what ``cog tune`` chose for the index is left out.
        :param allow_licences: Copy only from documents of these licences; none for all.
        :param deny_licences: Never copy from documents of these licences.
        :param exclude_documents: Ids of documents that are never copied from.
        :returns: The generator.
        :raises CogError: If the corpus has no index, or something does not match.
        """
        choose_corpus(self._paths, corpus_id)  # before anything slow is loaded
        from cog.api.generator import Generator
        from cog.decoding.licences import CopyRule

        names = allow_licences, deny_licences, exclude_documents
        return Generator(
            self._paths,
            corpus_id,
            device=device,
            precision=precision,
            is_untuned=untuned,
            rule=CopyRule(*map(frozenset, names)),
        )

    @name_extras()
    def evaluate(
        self,
        corpus_id: str,
        *,
        prompts_of: str | None = None,
        system: str = "cog",
        num_prompts: int | None = None,
        seeds: Sequence[int] | None = None,
        protocol: str | None = None,
        metrics: Sequence[str] = (),
        untuned: bool = False,
        allow_few_texts: bool = False,
        allow_contamination: bool = False,
        experiment: str | None = "evaluate",
        device: str = "auto",
        precision: str | None = None,
        progress: Progress | None = None,
        **settings: Unpack[Settings],
    ) -> "DataFrame | Rows":
        """Score the texts of a corpus under one pinned protocol, as ``cog evaluate`` does.

        What was written or measured before is taken from disk; None takes params.yaml's value.
        ``metrics`` are groups of scores, none for all; ``experiment=None`` logs nothing;
        ``progress`` is told what is done. Each score is a row, with what it is of.
        """
        from cog.evaluation.planning import Wanted, evaluate_wanted
        from cog.evaluation.protocol import GROUPS

        wanted = Wanted(
            corpus_id=corpus_id,
            prompt_corpus_id=prompts_of,
            system=system,
            settings=settings,
            is_untuned=untuned,
            protocol=protocol,
            num_prompts=num_prompts,
            seeds=None if seeds is None else tuple(seeds),
            groups=tuple(metrics) or GROUPS,
            allow_few_texts=allow_few_texts,
            allow_contamination=allow_contamination,
            device=device,
        )
        with refuse_wrong_settings(EvaluationError):
            params = set_precision(load_params(self._paths.params), precision)
            result, run = evaluate_wanted(
                self._paths,
                params,
                wanted,
                experiment=experiment,
                progress=progress or SilentProgress(),
            )
        return make_table(list_scores(result, run_id=run.run_id if run else None))

    @name_extras()
    def compare(
        self,
        *corpus_ids: str,
        prompts_of: str | None = None,
        systems: Sequence[str] = (),
        decodings: Sequence[str] = (),
        protocol: str | None = None,
        metrics: Sequence[str] = (),
        by_size: bool = False,
        pairs: bool = False,
    ) -> "DataFrame | Rows":
        """Put the scores of evaluated corpora side by side; all must be of one protocol.

        :param *corpus_ids: The corpora, each as it was evaluated.
        :param prompts_of: The corpus whose prompts all continued; None for each corpus's own.
        :param systems: What wrote the texts; none for ``cog``.
        :param decodings: How a choice was taken; two for both side by side.
        :param protocol: Name or first digits of the digest of a protocol.
        :param metrics: Only these scores.
        :param by_size: Whether the order is that of the size of the index.
        :param pairs: Whether rows are differences of two, with their intervals, instead of scores.
        :returns: One row for each score of each evaluation, or for each pair.
        :raises EvaluationError: If something was not evaluated, or not under one protocol.
        """
        from cog.evaluation.choose import Wish
        from cog.evaluation.planning import compare_wanted

        if not corpus_ids:
            raise EvaluationError("a comparison needs a corpus, or several", found="none")
        sides = tuple((each, system) for each in corpus_ids for system in systems or ("cog",))
        wish = Wish(sides, prompts_of, protocol, tuple(decodings))
        found, _ = compare_wanted(self._paths, wish, metrics=metrics, by_size=by_size)
        return make_table(list_pairs(found) if pairs else (row.to_json() for row in found.rows))
