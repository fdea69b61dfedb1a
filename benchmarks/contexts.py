"""Looking up the last tokens of a text in a whole index, against Lance's full-text index.

In a project with a built corpus: ``python -m benchmarks.contexts [--corpus wiki-mini]``. Both are
made anew of the same chunks, in a temporary folder; the project's own index is left alone. What is
looked up is what stands in the index before random words: its last tokens here, its last words as a
phrase there.
"""

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import pyarrow as pa
from lancedb.index import FTS
from lancedb.query import PhraseQuery
from numpy.typing import NDArray

from benchmarks.common import ROOT, measure, report, say
from cog.index.read.reader import PhraseIndex, open_index
from cog.index.search.contexts import (
    COLUMNS,
    CONTEXTS,
    MAX_CONTEXT,
    find_places,
    iter_blocks,
    load_blocks,
    save_blocks,
)
from cog.index.tables.store import CHUNKS, WORDS
from cog.index.versions.folders import get_folder_bytes
from cog.paths import find_project

MIN_TOKENS = 3
MAX_PLACES = 64
REPEATS = 5


@dataclass(frozen=True, slots=True)
class Lookup:
    """What is looked up.

    :param tail: The last tokens.
    :param phrase: The last words.
    :param chunk_id: Where they stand.
    """

    tail: NDArray[np.int32]
    phrase: str
    chunk_id: int


def choose_lookups(index: PhraseIndex, *, num_lookups: int, num_words: int) -> list[Lookup]:
    """Choose random words of an index, and take what stands before them.

    :param index: The index.
    :param num_lookups: How many.
    :param num_words: Number of words of a phrase.
    :returns: What to look up.
    """
    random = np.random.default_rng(0)
    size = min(num_lookups, index.num_chunks)
    chunks = index.gather_chunks(random.choice(index.num_chunks, size=size, replace=False))
    documents = index.get_documents(chunks.document_ordinals.tolist())
    lookups = []
    for number, ordinal in enumerate(chunks.document_ordinals.tolist()):
        first, last = chunks.word_offsets[number : number + 2].tolist()
        if last - first <= num_words:
            continue
        word = int(random.integers(first + num_words, last))
        start, end = chunks.word_chars[word - num_words, 0], chunks.word_chars[word - 1, 1]
        tokens = slice(chunks.word_tokens[first, 0], chunks.word_tokens[word, 0])
        lookups.append(
            Lookup(
                tail=chunks.token_ids[tokens][-MAX_CONTEXT:],
                phrase=documents[ordinal].text[start:end],
                chunk_id=int(chunks.chunk_ids[number]),
            )
        )
    return lookups


def time_contexts(index: PhraseIndex, folder: Path, lookups: list[Lookup]) -> dict[str, Any]:
    """Build contexts and look everything up.

    :param index: The index.
    :param folder: Where to.
    :param lookups: What to look up.
    :returns: Figures.
    """
    began = time.perf_counter()
    save_blocks(folder, iter_blocks(index.parts[0].iter_rows(WORDS, columns=COLUMNS)))
    seconds = time.perf_counter() - began
    blocks = load_blocks(folder)

    def find_all() -> list[set[int]]:
        settings: dict[str, Any] = {"max_places": MAX_PLACES, "allowed": None}
        places = (
            find_places(blocks, each.tail, min_tokens=MIN_TOKENS, **settings) for each in lookups
        )
        return [set(each.chunk_ids.tolist()) for each in places]

    return {
        "build_seconds": seconds,
        "bytes_per_word": get_folder_bytes(folder / CONTEXTS) / index.num_words,
        "lookup_milliseconds": 1e3 * measure(find_all, repeats=REPEATS) / len(lookups),
        "recall": _measure_recall(find_all(), lookups),
    }


def time_full_text(index: PhraseIndex, folder: Path, lookups: list[Lookup]) -> dict[str, Any]:
    """Build Lance's full-text index with positions, and look everything up.

    :param index: The index.
    :param folder: Where to.
    :param lookups: What to look up.
    :returns: Figures.
    """
    table: Any = lancedb.connect(str(folder)).create_table("texts", data=_read_texts(index))
    began = time.perf_counter()
    plain = {"stem": False, "remove_stop_words": False, "ascii_folding": False}
    table.create_index("text", config=FTS(with_position=True, **plain))
    seconds = time.perf_counter() - began

    def find_all() -> list[set[int]]:
        found = []
        for each in lookups:
            query = table.search(PhraseQuery(each.phrase, "text"), query_type="fts")
            rows = query.select(["chunk_id", "_score"]).limit(MAX_PLACES).to_arrow()
            found.append(set(rows.column("chunk_id").to_pylist()))
        return found

    size = get_folder_bytes(folder / "texts.lance" / "_indices")
    return {
        "build_seconds": seconds,
        "bytes_per_word": size / index.num_words,
        "lookup_milliseconds": 1e3 * measure(find_all, repeats=REPEATS) / len(lookups),
        "recall": _measure_recall(find_all(), lookups),
    }


def _read_texts(index: PhraseIndex) -> pa.Table:
    columns = ["document_ordinal", "char_start", "char_end"]
    batches = index.parts[0].iter_rows(CHUNKS, columns=columns)
    rows = [row for batch in batches for row in batch.to_pylist()]
    documents = index.get_documents(row["document_ordinal"] for row in rows)
    texts = [
        documents[row["document_ordinal"]].text[row["char_start"] : row["char_end"]] for row in rows
    ]
    return pa.table({"chunk_id": np.arange(len(texts)), "text": texts})


def _measure_recall(found: list[set[int]], lookups: list[Lookup]) -> float:
    # whether the place is found from which the words were taken; of frequent ones it need not be
    hits = [each.chunk_id in ids for ids, each in zip(found, lookups, strict=True)]
    return sum(hits) / len(hits)


def main() -> None:
    """Build both, look up, and print the ratios (theirs over ours; larger is better)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", default="wiki-mini")
    parser.add_argument("--lookups", type=int, default=200)
    parser.add_argument("--words", type=int, default=4, help="of a phrase")
    options = parser.parse_args()

    paths = find_project(ROOT)
    with (
        tempfile.TemporaryDirectory() as folder,
        open_index(paths.corpus(options.corpus)) as index,
    ):
        lookups = choose_lookups(index, num_lookups=options.lookups, num_words=options.words)
        say("contexts")
        ours = time_contexts(index, Path(folder), lookups)
        say("Lance's full-text index")
        theirs = time_full_text(index, Path(folder), lookups)
        manifest = index.parts[0].manifest
    ratios = ("build_seconds", "bytes_per_word", "lookup_milliseconds")
    report(
        {
            "benchmark": "contexts",
            **{f"ratio_{name}": theirs[name] / ours[name] for name in ratios},
            "contexts": ours,
            "full_text": theirs,
            "share_of_full_build": ours["build_seconds"] / manifest.seconds["total"]
            if manifest.num_encoded == manifest.num_chunks
            else None,
            "num_lookups": len(lookups),
            "num_words": manifest.num_words,
            "num_tokens": manifest.num_tokens,
            "corpus": options.corpus,
        }
    )


if __name__ == "__main__":
    main()
