"""Bodies of requests: plain values go in, checked records come out, with the settings in force."""

from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

from cog.baselines.system import COG
from cog.decoding.licences import CopyRule
from cog.decoding.settings import METHOD, choose_settings
from cog.errors import RequestError
from cog.params import Params
from cog.paths import ProjectPaths
from cog.reading import Count, FieldError, Natural, OneOf, OneOrMany, Range, read_record
from cog.records import GREEDY, Active, Decoding
from cog.serve.indexes import Version
from cog.serve.settings import ServeSettings
from cog.serve.systems import SERVED

ACTIVE = "active"
Body = TypeVar("Body")


@dataclass(frozen=True, slots=True)
class GenerateBody:
    """What ``POST /generate`` takes.

    :param prefix: The text to continue, or several; may be empty.
    :param corpus: Corpus id, or several joined with ``+``; null for what is active.
    :param index: Digest of a version of the index, or its beginning; null for the one in place, or
        the one that was switched on.
    :param num_return: Number of texts per prefix, with seeds that count up.
    :param system: What writes: CoG, or CoG with one thing changed, by its name in evaluations.
    :param deterministic: Whether each text shares no pass with others, so that the same seed gives
        it again whatever else the server writes; slower where much is written.
    :param stream: Whether segments are sent as they come, as server-sent events.
    :param untuned: Whether what was tuned for the index is left out.
    :param decoding: Settings by name.
    :param allow_licences: Copy only from documents of these licences.
    :param deny_licences: Never copy from documents of these licences.
    :param exclude_documents: Never copy from these documents.
    """

    prefix: Annotated[tuple[str, ...], OneOrMany()]
    corpus: str | None = None
    index: str | None = None
    num_return: Count = 1
    system: Annotated[str, OneOf(tuple(SERVED))] = COG
    deterministic: bool = False
    stream: bool = False
    untuned: bool = False
    decoding: dict[str, Any] = field(default_factory=dict)
    allow_licences: tuple[str, ...] = ()
    deny_licences: tuple[str, ...] = ()
    exclude_documents: tuple[str, ...] = ()

    @property
    def rule(self) -> CopyRule:
        """Which documents may be copied from."""
        named = (self.allow_licences, self.deny_licences, self.exclude_documents)
        return CopyRule(*map(frozenset, named))


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """What else a stream holds.

    :param include_usage: Whether the last event holds counts of tokens.
    :param include_obfuscation: Accepted, and without effect.
    """

    include_usage: bool = False
    include_obfuscation: bool = False


@dataclass(frozen=True, slots=True)
class CompletionBody:
    """What ``POST /v1/completions`` takes; of OpenAI's other fields only what changes nothing.

    :param prompt: The text to continue, or several.
    :param model: Corpus id, several joined with ``+``, or ``active``.
    :param max_tokens: Number of tokens to append; all are written.
    :param temperature: Divides scores before a draw; 0 is greedy.
    :param top_p: Mass of the nucleus.
    :param seed: Seed of the first text of a prompt.
    :param n: Number of texts per prompt, with seeds that count up.
    :param stream: Whether pieces are sent as they come, as server-sent events.
    :param stream_options: What else a stream holds.
    :param user: Accepted, and without effect.
    :param decoding: Any other setting by name.
    :param deterministic: Whether each text shares no pass with others, so that the same seed gives
        it again whatever else the server writes; slower where much is written.
    :param best_of: Must be as ``n``.
    :param echo: Must be false.
    :param suffix: Must be null.
    :param stop: Must be null.
    :param logprobs: Must be null.
    :param logit_bias: Must be empty.
    :param presence_penalty: Must be 0.
    :param frequency_penalty: Must be 0.
    """

    prompt: Annotated[tuple[str, ...], OneOrMany()]
    model: str = ACTIVE
    max_tokens: Count | None = None
    temperature: Annotated[float, Range(at_least=0, at_most=100)] | None = None
    top_p: Annotated[float, Range(above=0, at_most=1)] | None = None
    seed: Natural | None = None
    n: Count | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    decoding: dict[str, Any] = field(default_factory=dict)
    deterministic: bool = False
    best_of: int | None = None
    echo: bool | None = None
    suffix: str | None = None
    stop: Any = None
    logprobs: int | None = None
    logit_bias: Any = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None

    def __post_init__(self) -> None:
        if self.best_of not in (None, self.n or 1):
            wanted = f"must be n ({self.n or 1}) or null"
            raise FieldError("best_of", wanted=wanted, found=str(self.best_of))
        names = ("echo", "suffix", "stop", "logit_bias", "presence_penalty", "frequency_penalty")
        for name in names:
            if getattr(self, name):
                run = f"leave {name} out"
                raise FieldError(name, wanted="is not supported", found="a value", run=run)
        if self.logprobs is not None:
            run = "leave it out: every annotation has its probability"
            raise FieldError("logprobs", wanted="is not supported", found="a value", run=run)

    def to_generate(self) -> GenerateBody:
        """The same as ``POST /generate`` takes it."""
        changes: dict[str, Any] = dict(self.decoding)
        given = {
            "max_new_tokens": self.max_tokens,
            "top_p": self.top_p,
            "seed": self.seed,
            "temperature": self.temperature,
        }
        changes |= {name: value for name, value in given.items() if value is not None}
        if self.temperature == 0:
            changes.pop("temperature")
            changes["method"] = GREEDY
        return GenerateBody(
            self.prompt,
            corpus=None if self.model == ACTIVE else self.model,
            num_return=self.n or 1,
            deterministic=self.deterministic,
            stream=bool(self.stream),
            decoding=changes,
        )


@dataclass(frozen=True, slots=True)
class SwitchBody:
    """What ``POST /api/switch`` takes.

    :param corpus: Corpus id, or several joined with ``+``.
    :param index: Digest of a version, or its beginning; null for the one in place.
    """

    corpus: str
    index: str | None = None


@dataclass(frozen=True, slots=True)
class EmptyBody:
    """A body without fields."""


@dataclass(frozen=True, slots=True)
class LoginBody:
    """What ``POST /api/login`` takes.

    :param key: The key of the server.
    """

    key: str


@dataclass(frozen=True, slots=True)
class StudyBody:
    """What ``POST /api/studies`` takes.

    :param systems: Two corpora, or ``corpus:system``, evaluated on the same prompts.
    :param num_prompts: Number of cases.
    :param seed: Seed of the choice and the order.
    :param prompts_of: Whose prompts they continued; null for those of the first.
    :param protocol: Name or digest of the protocol; null for the newest of both.
    """

    systems: tuple[str, ...]
    num_prompts: Count = 100
    seed: Natural = 0
    prompts_of: str | None = None
    protocol: str | None = None

    def __post_init__(self) -> None:
        if len(self.systems) != 2:
            raise FieldError("systems", wanted="must be two", found=str(len(self.systems)))


@dataclass(frozen=True, slots=True)
class RaterBody:
    """What ``POST /api/studies/{study}/raters`` takes.

    :param name: Name of the rater.
    """

    name: str


@dataclass(frozen=True, slots=True)
class JudgementBody:
    """What ``POST /api/studies/{study}/judgements`` takes.

    :param token: Who judges.
    :param item: The case.
    :param question: The question.
    :param answer: The answer; null takes it back.
    """

    token: str
    item: str
    question: str
    answer: Annotated[str, OneOf(("A", "B", "N"))] | None = None


def read_body(kind: type[Body], content: dict[str, Any]) -> Body:
    """Read what was sent into a record; ``RequestError`` if a field is wrong."""
    return read_record(kind, content, error=RequestError)


def check_body(body: GenerateBody, settings: ServeSettings, *, names: dict[str, str]) -> None:
    """Hold what is asked for against the limits of the server.

    ``names`` says what fields are called in the request, where that is something else.
    """
    prefix = names.get("prefix", "prefix")
    num_texts = len(body.prefix) * body.num_return
    longest = max(map(len, body.prefix), default=0)
    about, wanted, found = prefix, "", ""
    if not body.prefix:
        wanted, found = "must hold a text", "none"
    elif num_texts > settings.max_texts:
        about = names.get("num_return", "num_return") if len(body.prefix) == 1 else prefix
        wanted, found = f"must ask for {settings.max_texts} texts at most", str(num_texts)
    elif longest > (limit := settings.max_prefix_characters):
        wanted, found = f"must have {limit} characters at most", str(longest)
    if wanted:
        raise RequestError(f"{about} {wanted}", found=found, about=about)


def choose_decoding(
    paths: ProjectPaths,
    params: Params,
    body: GenerateBody,
    version: Version,
    *,
    model: str,
    names: dict[str, str],
) -> tuple[Decoding, str]:
    """The settings in force: what is asked for, else as tuned for the index, else of params.yaml.

    Gives a line, too, on what was tuned; empty if nothing was.
    """
    given = {METHOD if name == "method" else name: value for name, value in body.decoding.items()}
    try:
        return choose_settings(
            params.generate.decoding,
            paths.corpus(version.corpus),
            given,
            is_untuned=body.untuned,
            active=Active(version.corpus, version.index, model, ""),
        )
    except FieldError as error:
        name = error.keys[0] if error.keys else ""
        shown = names.get(name, f"decoding.{name}")
        raise RequestError(
            f"{shown} {error.wanted}", found=error.found, run=error.run, about=shown
        ) from None


def check_length(decoding: Decoding, settings: ServeSettings, *, names: dict[str, str]) -> None:
    """Refuse texts that are too long."""
    if decoding.max_new_tokens > settings.max_tokens:
        shown = names.get("max_new_tokens", "decoding.max_new_tokens")
        raise RequestError(
            f"{shown} must be {settings.max_tokens} at most",
            found=str(decoding.max_new_tokens),
            about=shown,
        )
