"""Scoring every phrase of 1,024 chunks.

Two products over words and a sum per phrase, against the paper's materialised phrase table.

Run: ``python -m benchmarks.scoring [--chunks 1024] [--words 80] [--dim 288]``
"""

import argparse

import numpy as np
import torch

from benchmarks.common import measure, report, say
from cog.decoding.candidates import Phrases, find_phrases
from cog.decoding.scoring import FloatScorer, IntegerScorer, make_scorer
from cog.index.records import GatheredChunks
from cog.index.tables.quantise import StoredVectors
from cog.model.integers import has_int8_dot_products
from cog.model.words import BARRED, CAN_END, CAN_START

CPU = torch.device("cpu")


def make_chunks(*, num_chunks: int, chunk_words: int, dim: int) -> GatheredChunks:
    """Chunks of random int8 vectors with the share of punctuation that prose has.

    :param num_chunks: Number of chunks.
    :param chunk_words: Number of words of each.
    :param dim: Width of a start or end vector.
    :returns: The chunks.
    """
    random = np.random.default_rng(0)
    num_words = num_chunks * chunk_words
    kinds = np.array([CAN_START | CAN_END, 0, BARRED], dtype=np.uint8)
    words = np.arange(num_words)
    tokens = np.stack([words, words + 1], axis=1)
    scales = random.uniform(0.005, 0.01, size=(2, num_words)).astype(np.float32)
    vectors = random.integers(-127, 128, size=(2, num_words, dim)).astype(np.int8)
    return GatheredChunks(
        chunk_ids=np.arange(num_chunks),
        document_ordinals=np.arange(num_chunks),
        word_offsets=np.arange(num_chunks + 1, dtype=np.int64) * chunk_words,
        start_vectors=vectors[0],
        end_vectors=vectors[1],
        start_scales=scales[0],
        end_scales=scales[1],
        word_flags=random.choice(kinds, size=num_words, p=[0.87, 0.07, 0.06]),
        word_hashes=random.zipf(1.3, size=num_words).astype(np.uint64),
        word_chars=(tokens * 6).astype(np.int32),
        word_tokens=tokens,
        token_ids=words.astype(np.int32),
    )


def materialise(chunks: GatheredChunks, phrases: Phrases) -> torch.Tensor:
    """Build the paper's phrase table.

    :param chunks: The gathered words.
    :param phrases: Their phrases.
    :returns: Start and end vector of every phrase, joined. *Shape:* ``(num_phrases, 2 * dim)``
    """
    starts, ends = (
        torch.from_numpy(vectors).float() * torch.from_numpy(scales).unsqueeze(1)
        for vectors, scales in (
            (chunks.start_vectors, chunks.start_scales),
            (chunks.end_vectors, chunks.end_scales),
        )
    )
    firsts = phrases.begin_words[phrases.first.long()]
    lasts = phrases.end_words[phrases.last.long()]
    return torch.cat([starts[firsts], ends[lasts]], dim=1)


def main() -> None:
    """Measure both and print the ratios (ours over the table; smaller is better)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=int, default=1024)
    parser.add_argument("--words", type=int, default=80)
    parser.add_argument("--dim", type=int, default=288)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1, help="one suffers least from neighbours")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    chunks = make_chunks(num_chunks=options.chunks, chunk_words=options.words, dim=options.dim)
    phrases = find_phrases(chunks, min_words=2, max_words=8)
    begins, ends = phrases.begin_words.numpy(), phrases.end_words.numpy()
    stored = (
        StoredVectors(chunks.start_vectors[begins], chunks.start_scales[begins]),
        StoredVectors(chunks.end_vectors[ends], chunks.end_scales[ends]),
    )
    query = torch.randn(1, 2 * options.dim)
    start_query, end_query = query[:, : options.dim], query[:, options.dim :]
    say(f"{len(phrases)} phrases of {len(chunks.word_flags)} words")

    def ours() -> torch.Tensor:
        start, end = scorer.score_words(start_query, end_query)
        return phrases.score(start[0], end[0])

    seconds = {}
    kinds = {"float32": lambda: FloatScorer(*stored, device=CPU)}
    if has_int8_dot_products():
        kinds["int8"] = lambda: IntegerScorer(*stored)
    for name, make in kinds.items():
        scorer = make()
        seconds[name] = measure(ours, repeats=options.repeats)
    scorer = make_scorer(chunks, device=CPU, begin_words=begins, end_words=ends)
    chosen = "int8" if isinstance(scorer, IntegerScorer) else "float32"
    banded = ours()

    paper = materialise(chunks, phrases)
    seconds["table"] = measure(lambda: paper @ query[0], repeats=options.repeats)
    difference = float((paper @ query[0] - banded).abs().max())

    num_words = len(chunks.word_flags)
    num_scored = len(begins) + len(ends)
    ours_bytes = num_scored * (options.dim + 4) + len(phrases) * 8
    table_bytes = paper.numel() * 4
    report(
        {
            "benchmark": "scoring",
            "ratio_seconds": seconds[chosen] / seconds["table"],
            "ratio_bytes": ours_bytes / table_bytes,
            "scorer": chosen,
            "seconds": seconds,
            "bytes": {"ours": ours_bytes, "table": table_bytes},
            "num_phrases": len(phrases),
            "num_words": num_words,
            "largest_difference": difference,
        }
    )


if __name__ == "__main__":
    main()
