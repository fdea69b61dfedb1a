"""Segmenting a corpus against a plain re-statement of the published algorithm, in one run.

The plain one (CoG, appendix B, as its code does it) extends a phrase by a word for as long as one
of the 1,024 nearest chunks of other documents holds it, and searches the chunks one by one as
strings. It is given its words and its nearest chunks. Ours is given its words too, and searches
every other document, exactly.

Run: ``python -m benchmarks.segment [--text FILE[.gz] | --corpus wiki-mini]``. A text file holds
documents with an empty line between them. Without either, ``wiki-mini`` of this project is taken if
it is prepared, else a made text.
"""

import argparse
import gzip
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import ROOT, peak_bytes, report, say
from cog.corpus.documents import DocumentStore
from cog.index.chunking import chunk_document
from cog.model.config import ModelConfig, load_config
from cog.model.load import load_splitter
from cog.model.words import BARRED, CAN_END, CAN_START, WordSplitter
from cog.params import load_params
from cog.paths import find_project
from cog.progress import SilentProgress
from cog.training.segmentation.grams import walk_words
from cog.training.segmentation.matches import CorpusWords, collect_texts, find_in_corpus

VECTOR_DIM = 256
MADE_DOCUMENTS = 1000
MADE_WORDS = 250


def read_texts(path: Path) -> Iterator[str]:
    """Read a text file.

    :param path: Plain or gzip; documents with an empty line between them.
    :yields: Documents.
    """
    content = path.read_bytes()
    content = gzip.decompress(content) if path.suffix == ".gz" else content
    lines = content.decode("utf-8").splitlines(keepends=True)
    groups = itertools.groupby(lines, key=lambda line: bool(line.strip()))
    yield from ("".join(group) for is_text, group in groups if is_text)


def make_texts() -> Iterator[str]:
    """Make documents of words as frequent as in prose, some of them in standing phrases.

    :yields: Documents.
    """
    random = np.random.default_rng(0)
    letters = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
    words = ["".join(random.choice(letters, size=1 + i % 4)) for i in range(20_000)]
    phrases = [" ".join(words[i] for i in random.zipf(1.3, size=4) % 20_000) for _ in range(2000)]
    for _ in range(MADE_DOCUMENTS):
        ranks = random.zipf(1.3, size=MADE_WORDS)
        parts = [
            phrases[rank % 2000] if rank % 5 == 0 else words[rank % 20_000]
            for rank in ranks.tolist()
        ]
        yield " ".join(parts) + "."


@dataclass(frozen=True, slots=True)
class Chunked:
    """Documents cut into chunks.

    :param words: All words; a run is a chunk.
    :param texts: Text of each chunk.
    :param strings: Words of each chunk, each with its leading space.
    """

    words: CorpusWords
    texts: list[str]
    strings: list[list[str]]


def cut_texts(texts: Sequence[str], *, splitter: WordSplitter, config: ModelConfig) -> Chunked:
    """Cut documents into chunks, as an index does.

    :param texts: The documents.
    :param splitter: Splits text into words.
    :param config: How long chunks are.
    :returns: The chunks.
    """
    known: dict[str, int] = {}
    chunk_texts, strings, flags, documents = [], [], [], []
    for number, text in enumerate(texts):
        blocks = chunk_document(text, document_ordinal=number, splitter=splitter, limits=config)
        for chunk in itertools.chain.from_iterable(block.chunks for block in blocks):
            bounds = chunk.word_chars.tolist()
            strings.append([text[a:b] for a, b in itertools.pairwise(bounds)])
            chunk_texts.append(chunk.text)
            flags.append(chunk.word_flags)
            documents.append(number)
    numbers = [known.setdefault(word, len(known)) for each in strings for word in each]
    words = CorpusWords(
        num_documents=len(texts),
        numbers=np.array(numbers, dtype=np.int32),
        flags=np.concatenate(flags),
        run_offsets=np.append(0, np.cumsum([len(each) for each in strings])),
        run_documents=np.array(documents, dtype=np.int32),
    )
    return Chunked(words, chunk_texts, strings)


def find_nearest(words: CorpusWords, *, top_k: int) -> Iterator[NDArray[np.int64]]:
    """The chunks of other documents that share most words with a chunk, rare ones counting more.

    :param words: The words; a run is a chunk.
    :param top_k: Number of chunks.
    :yields: Per chunk, the nearest, best first.
    """
    counts = np.bincount(words.numbers)
    directions = np.random.default_rng(0).standard_normal((len(counts), VECTOR_DIM))
    directions *= np.log(words.num_words / np.maximum(counts, 1))[:, np.newaxis] ** 2
    vectors = np.add.reduceat(directions[words.numbers], words.run_offsets[:-1], axis=0)
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    for document, vector in zip(words.run_documents, vectors, strict=True):
        order = np.argsort(-(vectors @ vector), kind="stable")
        yield order[words.run_documents[order] != document][:top_k]


def segment_plainly(
    words: Sequence[str], can_copy: Sequence[bool], sources: Sequence[str], *, max_words: int
) -> list[tuple[int, tuple[int, int] | None]]:
    """Segment a chunk as the published algorithm does.

    :param words: Its words, each with its leading space.
    :param can_copy: Whether a word may lie in a phrase; a mark stands alone.
    :param sources: Texts that may hold a phrase.
    :param max_words: Number of words of a phrase, at most.
    :returns: Number of words of each segment, and the source and character it was found at.
    """
    segments = []
    start = 0
    while start < len(words):
        length, place = 1, None
        while length < max_words and start + length < len(words) and can_copy[start]:
            if not can_copy[start + length]:
                break
            phrase = "".join(words[start : start + length + 1])
            found = search_plainly(phrase, sources)
            if found is None:
                break
            length, place = length + 1, found
        segments.append((length, place))
        start += length
    return segments


def search_plainly(phrase: str, sources: Sequence[str]) -> tuple[int, int] | None:
    """Search texts one after another.

    :param phrase: What to find.
    :param sources: The texts.
    :returns: The first that holds it, and where; None if none does.
    """
    for number, source in enumerate(sources):
        position = source.find(phrase)
        if position >= 0:
            return number, position
    return None


def run_peer(
    chunked: Chunked,
    nearest: Sequence[NDArray[np.int64]],
    *,
    targets: Sequence[int],
    max_words: int,
) -> dict[str, Any]:
    """Time the plain algorithm.

    :param chunked: The chunks.
    :param nearest: Per chunk, its nearest chunks.
    :param targets: The chunks to segment.
    :param max_words: Number of words of a phrase, at most.
    :returns: Words per second and the share of words it copies.
    """
    words, seconds, num_words, copied = chunked.words, 0.0, 0, 0
    free = CAN_START | CAN_END
    for target in targets:
        first, last = words.run_offsets[target : target + 2].tolist()
        strings = chunked.strings[target]
        can_copy = ((words.flags[first:last] & (free | BARRED)) == free).tolist()
        sources = [chunked.texts[i] for i in nearest[target].tolist()]
        began = time.perf_counter()
        segments = segment_plainly(strings, can_copy, sources, max_words=max_words)
        seconds += time.perf_counter() - began
        num_words += len(strings)
        copied += sum(length for length, place in segments if place is not None)
    return {
        "words_per_second": num_words / seconds,
        "copied_share": copied / num_words,
        "num_words": num_words,
    }


def run_exact(
    texts: Sequence[str], *, splitter: WordSplitter, config: ModelConfig
) -> dict[str, Any]:
    """Time ``cog paper segment`` with every other document as a source.

    :param texts: The documents.
    :param splitter: Splits text into words.
    :param config: How long phrases are.
    :returns: Words per second, in all and without splitting, and the share of words it copies.
    """
    began = time.perf_counter()
    words = collect_texts(texts, splitter=splitter, progress=SilentProgress())
    split = time.perf_counter()
    lengths = find_in_corpus(
        words, min_words=config.min_phrase_words, max_words=config.max_phrase_words
    )
    copied = int(lengths[walk_words(lengths)].sum())
    ended = time.perf_counter()
    return {
        "words_per_second": words.num_words / (ended - split),
        "words_per_second_with_splitting": words.num_words / (ended - began),
        "copied_share": copied / words.num_words,
        "num_words": words.num_words,
    }


def load_texts(options: argparse.Namespace) -> tuple[str, list[str]]:
    """Find the text to segment.

    :param options: The command line.
    :returns: Where it is from, and the documents.
    """
    if options.text:
        return options.text.name, list(read_texts(options.text))
    path = find_project(ROOT).corpus(options.corpus).documents
    if path.is_file():
        documents = DocumentStore(path).iter_documents()
        return options.corpus, [document.text for document in documents]
    return "made text", list(make_texts())


def main() -> None:
    """Measure both and print the ratio (our words per second over the plain algorithm's)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, help="a text file, plain or gzip")
    parser.add_argument("--corpus", default="wiki-mini")
    parser.add_argument("--max-documents", type=int, help="take the first documents only")
    parser.add_argument("--top-k-documents", type=int, default=1024)
    parser.add_argument("--peer-words", type=int, default=10_000, help="words the peer segments")
    options = parser.parse_args()

    paths = find_project(ROOT)
    model_folder = paths.model(load_params(paths.params).model)
    config, splitter = load_config(model_folder), load_splitter(model_folder)
    name, texts = load_texts(options)
    texts = texts[: options.max_documents]
    chunked = cut_texts(texts, splitter=splitter, config=config)
    step = max(chunked.words.num_words // options.peer_words, 1)
    targets = range(0, len(chunked.texts), step)
    say(f"{name}: {len(texts)} documents, {len(chunked.texts)} chunks, {len(targets)} for the peer")
    nearest = list(find_nearest(chunked.words, top_k=options.top_k_documents))

    peer = run_peer(chunked, nearest, targets=targets, max_words=config.max_phrase_words)
    fresh = load_splitter(model_folder)  # the other one remembers these texts
    exact = run_exact(texts, splitter=fresh, config=config)
    speed = peer["words_per_second"]
    report(
        {
            "benchmark": "segment",
            "ratio": exact["words_per_second"] / speed,
            "ratio_with_splitting": exact["words_per_second_with_splitting"] / speed,
            "exact": exact,
            "peer": peer,
            "text": name,
            "num_chunks_searched": int(np.mean([len(rows) for rows in nearest])),
            "peak_bytes": peak_bytes(),
        }
    )


if __name__ == "__main__":
    main()
