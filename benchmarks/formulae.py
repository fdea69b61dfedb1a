"""Formulae: what a collection always says after some words, and whether it is written after them.

A formula is a sequence of six words that stands three times or more in an index with a next word,
the same one in 80 % of the places or more. Some are drawn, and greedy CoG at the project's defaults
continues each, beside its prefix encoder under the same verification (``cog-tokens``). This tells
how a decoder does and is never used to choose settings: the sequences are of the index itself, so
it would choose the settings that copy most. In a project with built indexes:
``python -m benchmarks.formulae [--corpus ID ...] [--num 200] [--seed 0]``
"""

import argparse
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import ROOT, report, say
from cog.baselines.system import COG, resolve_system
from cog.baselines.systems import open_system
from cog.decoding.batches import iter_batches
from cog.decoding.request import Request
from cog.index.chunking import MAX_BLOCK_CHARS, iter_blocks
from cog.index.read.reader import open_index
from cog.model.load import load_splitter
from cog.model.words import BARRED, WordSplitter, flag_words
from cog.params import Params, load_params
from cog.paths import ProjectPaths, find_project
from cog.records import Decoding

TOKENS = "cog-tokens"
NUM_WORDS = 6
MIN_PLACES = 3
MIN_SHARE = 0.8
MAX_NEW_TOKENS = 12  # more than any word that is looked for
BATCH_SIZE = 8
DOCUMENTS_PER_BLOCK = 500
NO_WORD = -1


@dataclass(frozen=True, slots=True)
class Formula:
    """A sequence of words that one word nearly always follows.

    :param text: The sequence as it stands in the documents, the space before it included.
    :param next_word: The word that follows, with its space.
    :param num_places: Number of places where the sequence stands before any word.
    :param num_same: Number of those where it stands before ``next_word``.
    """

    text: str
    next_word: str
    num_places: int
    num_same: int


def find_formulae(
    texts: Iterable[str],
    splitter: WordSplitter,
    *,
    num_words: int = NUM_WORDS,
    min_places: int = MIN_PLACES,
    min_share: float = MIN_SHARE,
) -> list[Formula]:
    """Find the sequences of words that one word nearly always follows.

    Neither a sequence nor the word after it holds a barred word (a full stop, a line feed), since
    no phrase does; a place before such a word, or at the end of a text, does not count.

    :param texts: The documents.
    :param splitter: Splits them into words.
    :param num_words: Number of words of a sequence.
    :param min_places: Number of places, at least.
    :param min_share: Share of the places that have the same next word, at least; above a half, so
        that no two words have it.
    :returns: The formulae in the order of their texts, whatever the order of the documents.
    """
    word_ids: dict[str, int] = {}
    length = num_words + 1
    found = [np.zeros((0, length), dtype=np.int32)]
    for text in texts:
        for words in _iter_words(text, splitter):
            ids = [
                NO_WORD if word is None else word_ids.setdefault(word, len(word_ids))
                for word in words
            ]
            if len(ids) >= length:
                rows = np.lib.stride_tricks.sliding_window_view(np.array(ids, np.int32), length)
                found.append(rows[(rows != NO_WORD).all(axis=1)])
    rows, counts = np.unique(np.concatenate(found), axis=0, return_counts=True)
    spelled = list(word_ids)
    formulae = [
        Formula("".join(spelled[i] for i in row[:-1]), spelled[row[-1]], places, same)
        for row, places, same in _iter_groups(rows, counts)
        if places >= min_places and same >= min_share * places
    ]
    return sorted(formulae, key=lambda formula: (formula.text, formula.next_word))


def _iter_words(text: str, splitter: WordSplitter) -> Iterator[list[str | None]]:
    # the words of each block of a document; None for barred ones
    for start, end in iter_blocks(text, max_chars=MAX_BLOCK_CHARS):
        block = text[start:end]
        bounds = splitter.split(block).word_chars
        is_barred = (flag_words(block, bounds) & BARRED) != 0
        spans = zip(bounds[:-1].tolist(), bounds[1:].tolist(), is_barred.tolist(), strict=True)
        yield [None if barred else block[first:last] for first, last, barred in spans]


def _iter_groups(
    rows: NDArray[np.int32], counts: NDArray[np.int64]
) -> Iterator[tuple[list[int], int, int]]:
    # of rows that differ in the last number only: the most frequent, the places of all, and its own
    is_first = np.ones(len(rows), dtype=bool)
    is_first[1:] = (rows[1:, :-1] != rows[:-1, :-1]).any(axis=1)
    bounds = [*np.flatnonzero(is_first).tolist(), len(rows)]
    for first, last in pairwise(bounds):
        own = counts[first:last]
        yield rows[first + own.argmax()].tolist(), int(own.sum()), int(own.max())


def draw_formulae(formulae: Sequence[Formula], *, num: int, seed: int) -> list[Formula]:
    """Draw some formulae.

    :param formulae: The formulae in canonical order.
    :param num: Number to draw; all are taken if there are fewer.
    :param seed: Seed of the draw.
    :returns: Those drawn, in the same order.
    """
    size = min(num, len(formulae))
    places = np.random.default_rng(seed).choice(len(formulae), size=size, replace=False)
    return [formulae[place] for place in sorted(places.tolist())]


def begins_with_word(text: str, word: str) -> bool:
    """Whether a text begins with a word, whole.

    :param text: What was written.
    :param word: The word with its space.
    :returns: True if no letter or digit goes on after it.
    """
    rest = text.removeprefix(word)
    if rest == text:
        return False
    return not (word[-1].isalnum() and re.match(r"\w", rest))


def measure_share(
    paths: ProjectPaths,
    params: Params,
    formulae: Sequence[Formula],
    *,
    corpus_id: str,
    name: str,
    decoding: Decoding,
) -> list[bool]:
    """Continue every formula greedily.

    :param paths: The project.
    :param params: Its parameters.
    :param formulae: What is continued, without the space before it.
    :param corpus_id: The corpus.
    :param name: What it is called.
    :param decoding: How.
    :returns: Whether the expected word is written, by formula.
    """
    is_right: list[bool] = []
    with open_system(paths, params, corpus_id=corpus_id, name=COG, device="cpu") as generator:
        for batch in iter_batches(formulae, BATCH_SIZE):
            requests = [Request(formula.text.lstrip(), decoding) for formula in batch]
            for formula, written in zip(batch, generator.generate(requests), strict=True):
                is_right.append(begins_with_word(written.text, formula.next_word))
            say(f"{corpus_id}, {name}: {sum(is_right)} of {len(is_right)} of {len(formulae)}")
    return is_right


def iter_texts(paths: ProjectPaths, corpus_id: str) -> Iterator[str]:
    """Read the documents of an index.

    :param paths: The project.
    :param corpus_id: The corpus.
    :yields: Their texts.
    """
    with open_index(paths.corpus(corpus_id)) as index:
        for block in iter_batches(range(index.num_documents), DOCUMENTS_PER_BLOCK):
            documents = index.get_documents(block)
            yield from (documents[ordinal].text for ordinal in block)


def measure_corpus(
    paths: ProjectPaths, params: Params, corpus_id: str, *, num: int, seed: int
) -> dict[str, Any]:
    """Find, draw and continue the formulae of a corpus.

    :param paths: The project.
    :param params: Its parameters.
    :param corpus_id: The corpus, which has an index.
    :param num: Number of formulae to continue.
    :param seed: Seed of the draw.
    :returns: Counts, shares with their intervals of 95 %, and the settings.
    """
    splitter = load_splitter(paths.model(params.model))
    formulae = find_formulae(iter_texts(paths, corpus_id), splitter)
    drawn = draw_formulae(formulae, num=num, seed=seed)
    say(f"{corpus_id}: {len(formulae)} formulae, {len(drawn)} drawn")
    decoding = replace(params.generate.decoding, method="greedy", max_new_tokens=MAX_NEW_TOKENS)
    found = {
        name: measure_share(
            paths,
            params,
            drawn,
            corpus_id=corpus_id,
            name=name,
            decoding=resolve_system(name, decoding)[1],
        )
        for name in (COG, TOKENS)
    }
    pairs = list(zip(found[COG], found[TOKENS], strict=True))
    return {
        "num_sequences": len(formulae),
        "num_drawn": len(drawn),
        "share_cog": _get_share(found[COG]),
        "share_cog_interval": get_interval(found[COG]),
        "share_tokens": _get_share(found[TOKENS]),
        "share_tokens_interval": get_interval(found[TOKENS]),
        "num_cog_only": sum(own and not other for own, other in pairs),
        "num_tokens_only": sum(other and not own for own, other in pairs),
        "decoding": asdict(decoding),
    }


def _get_share(is_right: Sequence[bool]) -> float | None:
    return sum(is_right) / len(is_right) if is_right else None


def get_interval(is_right: Sequence[bool]) -> list[float] | None:
    """The interval of a share (Wilson 1927), of 95 %.

    :param is_right: One outcome per case.
    :returns: Its bounds; None without cases.
    """
    if not is_right:
        return None
    n, z = len(is_right), 1.96
    share = sum(is_right) / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return [middle - half, middle + half]


def main() -> None:
    """Print the shares of every corpus as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", nargs="+", default=["wiki-mini", "eu-law-mini"], metavar="ID")
    parser.add_argument("--num", type=int, default=200, help="number of formulae, of each corpus")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    options = parser.parse_args()
    paths = find_project(ROOT)
    params = load_params(paths.params)
    corpora = {
        corpus_id: measure_corpus(paths, params, corpus_id, num=options.num, seed=options.seed)
        for corpus_id in options.corpus
    }
    report(
        {
            "benchmark": "formulae",
            "corpora": corpora,
            "seed": options.seed,
            "num_words": NUM_WORDS,
            "min_places": MIN_PLACES,
            "min_share": MIN_SHARE,
        }
    )


if __name__ == "__main__":
    main()
