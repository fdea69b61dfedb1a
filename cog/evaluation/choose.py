"""What is compared: corpus ids go in, their kept evaluations of one protocol come out."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cog.baselines.system import (
    ABLATIONS,
    COG,
    COPYING,
    IN_CONTEXT,
    IN_CONTEXT_CHUNKS,
    resolve_system,
    take_used,
)
from cog.baselines.systems import identify_system
from cog.decoding.tuning import load_tuning
from cog.errors import CogError, EvaluationError
from cog.evaluation.protocol import PRESETS, check_one_protocol
from cog.evaluation.records import EvaluationResult
from cog.evaluation.store import EvaluationStore
from cog.index.versions.unions import check_cards, shorten_digest
from cog.params import Params, load_params
from cog.paths import ProjectPaths
from cog.records import DECODER_VERSION, Decoding


@dataclass(frozen=True, slots=True)
class Wish:
    """Which evaluations are meant."""

    # what was copied from, each with what wrote the texts; a name of settings stands for CoG with
    # them
    sides: tuple[tuple[str, str], ...]
    prompt_corpus: str | None = None  # whose prompts were continued; None for each corpus's own
    # name of a preset or the first digits of a digest; None for the newest that all have in common
    protocol: str | None = None
    decodings: tuple[str, ...] = ()  # methods, each of every side; none for what was evaluated last


def find_results(paths: ProjectPaths, corpus_id: str) -> list[EvaluationResult]:
    """Read all results of a corpus, of whatever system and protocol; the pipeline's among them."""
    corpus = paths.corpus(corpus_id)
    return EvaluationStore(corpus.evaluations).load_results(corpus.evaluation)


def load_results(paths: ProjectPaths, corpus_id: str) -> list[EvaluationResult]:
    """Read all results of a corpus, of which there must be one."""
    found = find_results(paths, corpus_id)
    if not found:
        raise EvaluationError(
            f"{corpus_id} must have been evaluated",
            found="no evaluation",
            run=f"cog evaluate --corpus {corpus_id}",
            about=corpus_id,
        )
    return found


def choose_results(paths: ProjectPaths, wish: Wish) -> list[EvaluationResult]:
    """Find the evaluations to compare: of each corpus's index as it is now, under one protocol.

    One per side and decoding, in the order asked. Refused is what was not evaluated like that, or
    only before its index was built again, or by an older decoder; and what has no common protocol
    (``ProtocolError``, naming what differs).
    """
    params = load_params(paths.params)
    found = []
    known: dict[str, list[EvaluationResult]] = {}
    for corpus_id, name in dict.fromkeys(wish.sides):
        if corpus_id not in known:
            check_cards(paths, corpus_id)
            known[corpus_id] = load_results(paths, corpus_id)
        for method in dict.fromkeys(wish.decodings or (None,)):
            side = _Side(paths, params, corpus_id, name, method)
            found.append(side.choose(known[corpus_id], wish))
    shared = set.intersection(*({each.protocol.digest for each in group} for group in found))
    rules = [each.protocol.digest for each in found[0]]
    digest = next((each for each in rules if each in shared), rules[0])
    chosen = [
        next((each for each in group if each.protocol.digest == digest), group[0])
        for group in found
    ]
    labels = [f"{each.corpus} ({each.system})" for each in chosen]
    check_one_protocol(zip(labels, (each.protocol for each in chosen), strict=True))
    return chosen


def choose_named_sides(
    paths: ProjectPaths, names: Sequence[str], *, prompt_corpus: str | None, protocol: str | None
) -> list[EvaluationResult]:
    """Find an evaluation for each of some names, ``corpus`` or ``corpus:system``, as above.

    Prompts are those of the first one's corpus unless given; the names must differ.
    """
    parts = [name.partition(":") for name in names]
    sides = tuple((corpus_id, system or COG) for corpus_id, _, system in parts)
    if len(set(sides)) < len(sides):
        raise EvaluationError(
            "the sides must differ",
            found=" and ".join(names),
            run="name two systems, as in wiki-mini and wiki-mini:transformer",
        )
    return choose_results(paths, Wish(sides, prompt_corpus or parts[0][0], protocol))


def is_current(paths: ProjectPaths, params: Params, result: EvaluationResult) -> bool:
    """Whether a result is of what is there now: index, model and decoder."""
    try:
        now = _identify(paths, params, result)
    except CogError:
        return False
    system = result.system
    return (system.index, system.model, system.decoder) == (*now, DECODER_VERSION)


def get_usual_decoding(params: Params, name: str) -> Decoding:
    """How a system writes unless asked otherwise: as params.yaml says."""
    decoding = params.generate.decoding
    return replace(decoding, top_k_documents=IN_CONTEXT_CHUNKS) if name == IN_CONTEXT else decoding


@dataclass(frozen=True, slots=True)
class _Side:
    # one of what is wished for
    paths: ProjectPaths
    params: Params
    corpus_id: str
    name: str
    method: str | None

    def choose(self, known: Sequence[EvaluationResult], wish: Wish) -> list[EvaluationResult]:
        # those that are meant and of today's index; the usual settings first, then the newest
        prompt_corpus = wish.prompt_corpus or self.corpus_id
        usual = self._list_usual()
        name = resolve_system(self.name, usual[0])[0]
        # what another side names by its settings is not meant by the plain name beside it
        others = [
            replace(self, name=other)
            for corpus_id, other in wish.sides
            if (corpus_id, self.name) == (self.corpus_id, name) and other in ABLATIONS
        ]
        fitting = [
            each
            for each in known
            if (each.system.name, each.prompt_corpus) == (name, prompt_corpus)
            and _is_protocol(each, wish.protocol)
            and self.method in (None, each.system.decoding.method)
            and (self.name == name or self._has_settings(each))
            and not any(other._has_settings(each) for other in others)
        ]
        if not fitting:
            raise EvaluationError(
                f"{self.corpus_id} must have been evaluated with {self.name} on the prompts of "
                f"{prompt_corpus}"
                + (f" under the protocol {wish.protocol}" if wish.protocol else "")
                + (f" by {self.method} decoding" if self.method else ""),
                found="; ".join(sorted({_describe(each) for each in known})),
                run=self._command(wish),
                about=self.corpus_id,
            )
        return sorted(self._take_current(fitting, wish), key=lambda each: self._rank(each, usual))

    def _list_usual(self) -> list[Decoding]:
        usual = [get_usual_decoding(self.params, self.name)]
        name = resolve_system(self.name, usual[0])[0]
        tuning = load_tuning(self.paths.corpus(self.corpus_id), COG if name in COPYING else name)
        if tuning is not None:
            usual.insert(0, replace(usual[0], **tuning.values))
        return usual

    def _has_settings(self, result: EvaluationResult) -> bool:
        decoding = result.system.decoding
        _, wanted = resolve_system(self.name, decoding)
        return take_used(COG, wanted) == decoding

    def _rank(self, result: EvaluationResult, usual: Sequence[Decoding]) -> int:
        # number of settings that are not the usual ones
        settings = result.system.settings
        counts: list[int] = []
        for each in usual:
            _, wanted = resolve_system(self.name, each)
            counts.append(sum(getattr(wanted, n, v) != v for n, v in settings.items()))
        return min(counts)

    def _take_current(
        self, fitting: Sequence[EvaluationResult], wish: Wish
    ) -> list[EvaluationResult]:
        now = _identify(self.paths, self.params, fitting[0])
        current = [each for each in fitting if (each.system.index, each.system.model) == now]
        of_today = [each for each in current if each.system.decoder == DECODER_VERSION]
        if of_today:
            return of_today
        if current:
            wanted, found = f"decoder {DECODER_VERSION}", f"decoder {current[0].system.decoder}"
        else:
            wanted = f"its index {shorten_digest(now[0], 12)}"
            found = shorten_digest(fitting[0].system.index, 12)
            found += ", which was built again since, or is of another model"
        raise EvaluationError(
            f"the evaluation of {self.corpus_id} must be of {wanted}",
            found=found,
            run=self._command(wish),
            about=self.corpus_id,
        )

    def _command(self, wish: Wish) -> str:
        own = {None, self.corpus_id}
        prompts = "" if wish.prompt_corpus in own else f" --prompts-of {wish.prompt_corpus}"
        system = "" if self.name == COG else f" --system {self.name}"
        decoding = f" --decoding {self.method}" if self.method else ""
        protocol = f" --protocol {wish.protocol}" if wish.protocol in PRESETS else ""
        return f"cog evaluate --corpus {self.corpus_id}{prompts}{system}{decoding}{protocol}"


def _identify(paths: ProjectPaths, params: Params, result: EvaluationResult) -> tuple[str, str]:
    # what the system of a result copies from or searches now, and its model
    name, decoding = result.system.name, result.system.decoding
    now = identify_system(
        paths, params, corpus_id=result.corpus, name=name, decoding=decoding, device="cpu"
    )
    return now.index, now.model


def _is_protocol(result: EvaluationResult, wanted: str | None) -> bool:
    protocol = result.protocol
    return wanted is None or wanted == protocol.name or protocol.digest.startswith(wanted)


def _describe(result: EvaluationResult) -> str:
    return (
        f"{result.system} on {result.prompt_corpus} under {result.protocol.name} "
        f"{result.protocol.digest[:8]} ({result.system.decoding.method})"
    )
