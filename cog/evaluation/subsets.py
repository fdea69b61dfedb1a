"""Nested subsets of a corpus: its id and their sizes go in, cards of them are found or made."""

from collections.abc import Sequence
from dataclasses import replace

from cog.cards import Card, Subset
from cog.errors import EvaluationError
from cog.paths import ProjectPaths
from cog.registry import iter_cards, load_card, save_card

SUBSET_SEED = 0


def make_subsets(paths: ProjectPaths, corpus_id: str, proportions: Sequence[float]) -> list[str]:
    """Name the nested subsets of a corpus, smallest first, and write the cards that are missing."""
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
        if card.extends == corpus_id and card.subset is not None and card.subset.shard is None
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
