"""What is compared: corpus ids go in, their kept evaluations of one protocol come out."""

from collections.abc import Sequence
from dataclasses import dataclass

from cog.errors import EvaluationError
from cog.evaluation.protocol import check_one_protocol
from cog.evaluation.records import EvaluationResult
from cog.evaluation.results import (
    check_current,
    get_current_indexes,
    load_results,
    name_system,
)
from cog.index.versions.unions import check_cards
from cog.paths import ProjectPaths

DEFAULT_SYSTEM = "cog"
METHOD = "method"  # the rule that --decoding names


@dataclass(frozen=True, slots=True)
class Wish:
    """Which evaluations are meant.

    :param corpus_ids: Corpora that were copied from, at least one.
    :param systems: What wrote the texts; none for ``cog``.
    :param prompt_corpus: Corpus whose prompts were continued; None for each corpus's own.
    :param decodings: Methods of decoding; none for whatever was evaluated last.
    :param protocol: Name of a preset or the first digits of a digest; None for the newest that all
        have in common.
    """

    corpus_ids: tuple[str, ...]
    systems: tuple[str, ...]
    prompt_corpus: str | None
    protocol: str | None
    decodings: tuple[str, ...] = ()

    @property
    def across(self) -> tuple[str, ...]:
        """Rules of the protocol that are compared, and so may differ.

        :returns: Names of fields.
        """
        return (METHOD,) if len(set(self.decodings)) > 1 else ()


def choose_results(paths: ProjectPaths, wish: Wish) -> list[EvaluationResult]:
    """Find the evaluations to compare: of each corpus's index as it is now, under one protocol.

    :param paths: The project.
    :param wish: Which are meant.
    :returns: One per corpus and system, in the order asked.
    :raises EvaluationError: If a corpus was not evaluated like that, or only before its index was
        built again; or if there is no common protocol (ProtocolError, naming what differs).
    """
    found: list[list[EvaluationResult]] = []
    for corpus_id in dict.fromkeys(wish.corpus_ids):
        check_cards(paths, corpus_id)
        known = load_results(paths, corpus_id)
        for system in dict.fromkeys(wish.systems or (DEFAULT_SYSTEM,)):
            for decoding in dict.fromkeys(wish.decodings or (None,)):
                one = _One(corpus_id, system, decoding)
                found.append(_choose(paths, known, one, wish=wish))
    return _find_common(found, wish.across)


def choose_sides(
    paths: ProjectPaths,
    sides: Sequence[tuple[str, str]],
    *,
    prompt_corpus: str,
    protocol: str | None,
) -> list[EvaluationResult]:
    """Find an evaluation of each of some pairs of corpus and system, all under one protocol.

    :param paths: The project.
    :param sides: Corpora that were copied from, each with what wrote the texts.
    :param prompt_corpus: Corpus whose prompts were continued.
    :param protocol: Name of a preset or the first digits of a digest; None for the newest that all
        have in common.
    :returns: One each, in the order asked.
    :raises EvaluationError: As :func:`choose_results`.
    """
    found = []
    for corpus_id, system in sides:
        check_cards(paths, corpus_id)
        wish = Wish((corpus_id,), (system,), prompt_corpus, protocol)
        known, one = load_results(paths, corpus_id), _One(corpus_id, system, None)
        found.append(_choose(paths, known, one, wish=wish))
    return _find_common(found, ())


def choose_named_sides(
    paths: ProjectPaths,
    names: Sequence[str],
    *,
    prompt_corpus: str | None,
    protocol: str | None,
) -> list[EvaluationResult]:
    """Find an evaluation for each of some names, all under one protocol.

    :param paths: The project.
    :param names: Corpus ids, or ``corpus:system``.
    :param prompt_corpus: Corpus whose prompts were continued; None for the first one of the names.
    :param protocol: As in :func:`choose_sides`.
    :returns: One each, in the order asked.
    :raises EvaluationError: As :func:`choose_results`.
    """
    parts = [name.partition(":") for name in names]
    return choose_sides(
        paths,
        [(corpus_id, system or DEFAULT_SYSTEM) for corpus_id, _, system in parts],
        prompt_corpus=prompt_corpus or parts[0][0],
        protocol=protocol,
    )


def _find_common(
    found: Sequence[Sequence[EvaluationResult]], across: Sequence[str]
) -> list[EvaluationResult]:
    def digest_of(result: EvaluationResult) -> str:
        return result.protocol.digest_without(across)

    shared = set.intersection(*({digest_of(each) for each in group} for group in found))
    common = [[each for each in group if digest_of(each) in shared] or group for group in found]
    digest = digest_of(common[0][0])
    chosen = [
        next((each for each in group if digest_of(each) == digest), group[0]) for group in common
    ]
    labels = [f"{each.corpus} ({each.system})" for each in chosen]
    check_one_protocol(zip(labels, (each.protocol for each in chosen), strict=True), across=across)
    return chosen


@dataclass(frozen=True, slots=True)
class _One:
    # one of what is wished for
    corpus_id: str
    system: str
    decoding: str | None


def _choose(
    paths: ProjectPaths, known: Sequence[EvaluationResult], one: _One, *, wish: Wish
) -> list[EvaluationResult]:
    corpus_id, system = one.corpus_id, one.system
    prompt_corpus = wish.prompt_corpus or corpus_id
    fitting = [
        each
        for each in known
        if (each.system, each.prompt_corpus) == (system, prompt_corpus)
        and _is_protocol(each, wish.protocol)
        and one.decoding in (None, each.protocol.decoding.method)
    ]
    if not fitting:
        raise EvaluationError(
            f"{corpus_id} must have been evaluated with {system} on the prompts of {prompt_corpus}"
            + (f" under the protocol {wish.protocol}" if wish.protocol else "")
            + (f" by {one.decoding} decoding" if one.decoding else ""),
            found="; ".join(sorted({_describe(each) for each in known})),
            run=f"cog evaluate --corpus {corpus_id}{name_system(system)}"
            + (f" --decoding {one.decoding}" if one.decoding else ""),
            about=corpus_id,
        )
    digests = get_current_indexes(paths, corpus_id, system=system)
    current = [each for each in fitting if each.index in digests]
    if not current:
        check_current(paths, fitting[0])
    return current


def _is_protocol(result: EvaluationResult, wanted: str | None) -> bool:
    protocol = result.protocol
    return wanted is None or wanted == protocol.name or protocol.digest.startswith(wanted)


def _describe(result: EvaluationResult) -> str:
    return (
        f"{result.system} on {result.prompt_corpus} under {result.protocol.name} "
        f"{result.protocol.digest[:8]} ({result.protocol.decoding.method})"
    )
