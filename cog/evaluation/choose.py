"""What is compared: corpus ids go in, their kept evaluations of one protocol come out."""

from collections.abc import Sequence
from dataclasses import dataclass

from cog.errors import EvaluationError
from cog.evaluation.protocol import check_one_protocol
from cog.evaluation.records import EvaluationResult
from cog.evaluation.results import check_current, get_current_index, load_results
from cog.index.unions import check_cards
from cog.paths import ProjectPaths

DEFAULT_SYSTEM = "cog"


@dataclass(frozen=True, slots=True)
class Wish:
    """Which evaluations are meant.

    :param corpus_ids: Corpora that were copied from, at least one.
    :param systems: What wrote the texts; none for ``cog``.
    :param prompt_corpus: Corpus whose prompts were continued; None for each corpus's own.
    :param protocol: Name of a preset or the first digits of a digest; None for the newest that all
        have in common.
    """

    corpus_ids: tuple[str, ...]
    systems: tuple[str, ...]
    prompt_corpus: str | None
    protocol: str | None


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
            found.append(_choose(paths, known, corpus_id=corpus_id, system=system, wish=wish))
    shared = set.intersection(*({each.protocol.digest for each in group} for group in found))
    common = [
        [each for each in group if each.protocol.digest in shared] or group for group in found
    ]
    digest = common[0][0].protocol.digest
    chosen = [
        next((each for each in group if each.protocol.digest == digest), group[0])
        for group in common
    ]
    check_one_protocol((f"{each.corpus} ({each.system})", each.protocol) for each in chosen)
    return chosen


def _choose(
    paths: ProjectPaths,
    known: Sequence[EvaluationResult],
    *,
    corpus_id: str,
    system: str,
    wish: Wish,
) -> list[EvaluationResult]:
    prompt_corpus = wish.prompt_corpus or corpus_id
    fitting = [
        each
        for each in known
        if (each.system, each.prompt_corpus) == (system, prompt_corpus)
        and _is_protocol(each, wish.protocol)
    ]
    if not fitting:
        raise EvaluationError(
            f"{corpus_id} must have been evaluated with {system} on the prompts of {prompt_corpus}"
            + (f" under the protocol {wish.protocol}" if wish.protocol else ""),
            found="; ".join(sorted({_describe(each) for each in known})),
            run=f"cog evaluate --corpus {corpus_id} --system {system}",
            about=corpus_id,
        )
    digest = get_current_index(paths, corpus_id, system=system)
    current = [each for each in fitting if each.index == digest]
    if not current:
        check_current(paths, fitting[0])
    return current


def _is_protocol(result: EvaluationResult, wanted: str | None) -> bool:
    protocol = result.protocol
    return wanted is None or wanted == protocol.name or protocol.digest.startswith(wanted)


def _describe(result: EvaluationResult) -> str:
    return (
        f"{result.system} on {result.prompt_corpus} under {result.protocol.name} "
        f"{result.protocol.digest[:8]}"
    )
