"""What a study needs: corpus ids go in, missing cards, documents and indexes are made.

Each step is put in place whole, so a study that was stopped goes on after its last one.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from cog import assets
from cog.cards import Card, Subset
from cog.corpus.fetch import fetch_corpus
from cog.corpus.prepare import prepare_corpus
from cog.corpus.sharing import share_raw
from cog.decoding.storage import make_storage_measure
from cog.errors import EvaluationError
from cog.index.project import build_corpus_index, count_corpus_words
from cog.model.piece_counts import load_cutter
from cog.params import Params
from cog.paths import ProjectPaths
from cog.progress import Progress
from cog.registry import iter_cards, load_card, load_resolved_card, save_card

OpenProgress = Callable[..., AbstractContextManager[Progress]]
SUBSET_SEED = 0


@dataclass(frozen=True, slots=True)
class Building:
    """How what is missing is made.

    :param source: Local file or folder to take instead of a card's source; None for the card's.
    :param device: ``cpu``, ``cuda`` or ``auto``.
    :param open_progress: Shows the progress of one step, as :func:`cog.progress.show_progress`.
    """

    source: Path | None
    device: str
    open_progress: OpenProgress


def make_subsets(paths: ProjectPaths, corpus_id: str, proportions: Sequence[float]) -> list[str]:
    """Name the nested subsets of a corpus, and write the cards that are missing.

    :param paths: The project.
    :param corpus_id: The corpus that they extend.
    :param proportions: Their sizes; each above 0, and at most 1.
    :returns: Corpus ids, from the smallest to the largest.
    :raises EvaluationError: If a size is none.
    """
    parent = load_card(paths, corpus_id)
    for proportion in proportions:
        if not 0 < proportion <= 1:
            raise EvaluationError(
                "a subset's proportion must be above 0 and at most 1",
                found=f"{proportion:g}",
                run="pass --proportions 0.01,0.1,1",
            )
    if parent.extends is not None:
        raise EvaluationError(
            "subsets must be taken of a corpus that has a source of its own",
            found=f"{corpus_id} extends {parent.extends}",
            run=f"pass --corpus {parent.extends}",
            about=corpus_id,
        )
    known = {
        card.subset.proportion: card.id
        for card in iter_cards(paths)
        if card.extends == corpus_id and card.subset is not None
        if card.subset.seed == SUBSET_SEED and card.prompts == parent.prompts
    }
    for proportion in sorted(set(proportions) - set(known)):
        known[proportion] = _make_subset(paths, parent, proportion)
    return [known[proportion] for proportion in sorted(set(proportions))]


def _make_subset(paths: ProjectPaths, parent: Card, proportion: float) -> str:
    percent = f"{100 * proportion:.10g}"
    card = replace(
        parent,
        id=f"{parent.id}-{percent}pct",
        title=f"{parent.title}, {percent} %",
        description=f"A random {percent} % of {parent.id} by seed, contained in every larger part; "
        "the prompts are those of the whole.",
        extends=parent.id,
        subset=Subset(proportion, SUBSET_SEED),
        source=None,
        format=None,
        normaliser=None,
        filters=None,
        deduplicate=None,
    )
    if paths.card(card.id).exists():
        raise EvaluationError(
            f"card {card.id} must be the part {proportion:g} of {parent.id}, with seed "
            f"{SUBSET_SEED} and its prompts",
            found="another card of this id",
            run=f"cog corpus show {card.id}",
            about=card.id,
        )
    save_card(paths, card)
    return card.id


def build_missing(
    paths: ProjectPaths, params: Params, corpus_ids: Sequence[str], building: Building
) -> list[str]:
    """Fetch, prepare and index the corpora that have no index yet.

    :param paths: The project.
    :param params: Its parameters.
    :param corpus_ids: The corpora.
    :param building: How.
    :returns: The corpora that were built.
    """
    missing = [each for each in corpus_ids if not paths.corpus(each).manifest.is_file()]
    for corpus_id in missing:
        corpus_paths = paths.corpus(corpus_id)
        if not corpus_paths.raw.exists():
            _fetch(paths, params, corpus_id, building)
        if not (corpus_paths.documents.is_file() and corpus_paths.prompts.is_file()):
            _prepare(paths, params, corpus_id, building)
        _index(paths, params, corpus_id, building)
    return missing


def _fetch(paths: ProjectPaths, params: Params, corpus_id: str, building: Building) -> None:
    card = load_resolved_card(paths, corpus_id)
    related = [
        each.id for each in iter_cards(paths) if each.root == load_card(paths, corpus_id).root
    ]
    fetched = next((each for each in related if paths.corpus(each).raw.exists()), None)
    if fetched is not None:
        share_raw(paths.corpus(fetched), paths.corpus(corpus_id))
        return
    with building.open_progress(f"fetch {corpus_id}", total=None, unit="files") as progress:
        fetch_corpus(
            card,
            corpus_paths=paths.corpus(corpus_id),
            fetcher=assets,
            source=building.source,
            retries=params.fetch.retries,
            timeout_seconds=params.fetch.timeout_seconds,
            progress=progress,
        )


def _prepare(paths: ProjectPaths, params: Params, corpus_id: str, building: Building) -> None:
    cutter = load_cutter(paths.model(params.model))
    with building.open_progress(f"prepare {corpus_id}", total=None, unit="documents") as progress:
        prepare_corpus(
            load_resolved_card(paths, corpus_id),
            corpus_paths=paths.corpus(corpus_id),
            tokenise=cutter.splitter.token_chars,
            progress=progress,
            prompt_tokens=params.prepare.prompt_tokens,
            reference_tokens=params.prepare.reference_tokens,
            count_pieces=cutter.count,
        )


def _index(paths: ProjectPaths, params: Params, corpus_id: str, building: Building) -> None:
    total = count_corpus_words(paths, corpus_id)
    measure_storage = make_storage_measure(
        paths.corpus(corpus_id),
        model_folder=paths.model(params.model),
        params=params.index,
        device=building.device,
    )
    with building.open_progress(f"index {corpus_id}", total=total, unit="words") as progress:
        build_corpus_index(
            paths,
            corpus_id,
            params=params,
            progress=progress,
            device=building.device,
            measure_storage=measure_storage,
        )
