"""Word counts: against a Counter over the words of the documents."""

import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from cog.errors import IndexMismatchError
from cog.hashing import hash_word
from cog.index.chunking import hash_words
from cog.index.read.reader import PhraseIndex, open_index
from cog.index.tables import word_counts
from cog.index.tables.word_counts import WordBits, WordCounter, WordCounts, get_form, join_counts
from cog.paths import CorpusPaths
from cog.records import Document
from tests.index.hash_model import WORD, build, write_corpus

TEXTS = (
    "The river and the house. THE river, the River 7 and 7",
    "the stone and a river " * 30 + "Straße STRASSE the end",
    "A house, a stone",
)


def count_slowly(words: list[str]) -> tuple[Counter[str], Counter[str]]:
    return Counter(words), Counter(word.removeprefix(" ").casefold() for word in words)


def open_counted(folder: Path, corpus_id: str, texts: tuple[str, ...]) -> PhraseIndex:
    corpus = CorpusPaths(folder / "corpora" / corpus_id)
    write_corpus(corpus, [Document(f"d{i}", "", t, "", "MIT", "f") for i, t in enumerate(texts)])
    build(corpus)
    return open_index(corpus)


def list_counts(counts: WordCounts) -> dict[int, tuple[int, int]]:
    rows = zip(counts.word_hashes, counts.form_hashes, counts.counts, strict=True)
    return {int(word): (int(form), int(count)) for word, form, count in rows}


def test_counts_and_bits_are_those_of_a_counter(tmp_path: Path) -> None:
    words = [match.group() for text in TEXTS for match in WORD.finditer(text)]
    by_word, by_form = count_slowly(words)
    expected = {hash_word(w): (hash_word(get_form(w)), n) for w, n in by_word.items()}
    with (
        open_counted(tmp_path, "whole", TEXTS) as whole,
        open_counted(tmp_path, "first", TEXTS[:1]) as first,
        open_counted(tmp_path, "second", TEXTS[1:]) as second,
    ):
        for index in (whole, PhraseIndex([*first.parts, *second.parts])):
            counts = index.load_word_counts()
            assert list_counts(counts) == expected
            assert (np.diff(counts.word_hashes.astype(object)) > 0).all()
            asked = [" the", "The", " THE", " river", " Straße", "7", " no such word"]
            known = [by_form[get_form(w)] if w in by_word else 1 for w in asked]
            bits = index.get_word_bits(np.array([hash_word(w) for w in asked], np.uint64))
            np.testing.assert_allclose(bits, -np.log2(np.array(known) / len(words)), rtol=1e-6)
            assert bits.dtype == np.float32
            assert len(index.get_word_bits(np.zeros(0, np.uint64))) == 0
        assert by_form["strasse"] == 2
        assert by_form["the"] > by_word["The"]


def test_counting_in_parts_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    chunks = [
        [f" {'Ab'[i % 2]}{i}" for i in generator.integers(0, 60, size)]
        for size in generator.integers(1, 40, 30)
    ]
    found = []
    for merged_words in (1, 100, 1 << 18):
        monkeypatch.setattr(word_counts, "MERGED_WORDS", merged_words)
        counter = WordCounter()
        for words in chunks:
            chars = np.cumsum([0, *map(len, words)]).astype(np.int32)
            counter.add(hash_words("".join(words), chars), "".join(words), chars + 9)
        found.append(list_counts(counter.get_counts()))
        assert found[-1] == list_counts(join_counts([counter.get_counts()]))
    by_word = Counter(word for words in chunks for word in words)
    assert found[0] == {hash_word(w): (hash_word(get_form(w)), n) for w, n in by_word.items()}
    assert found[0] == found[1] == found[2]


def test_many_words_are_looked_up_at_once() -> None:
    generator = np.random.default_rng(0)
    hashes = np.unique(generator.integers(0, 1 << 63, 200_000).astype(np.uint64))
    bits = WordBits(WordCounts(hashes, hashes, np.ones(len(hashes), np.int64)))
    asked = generator.choice(hashes, 20_000)
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        bits.get(asked)
        seconds.append(time.perf_counter() - began)
    assert min(seconds) < 0.05  # about 2 ms where nothing else runs


def test_counts_that_cannot_be_read_are_refused(index: PhraseIndex) -> None:
    path = index.parts[0].folder / "word_counts.npy"
    for content in (path.read_bytes()[:-24], path.read_bytes()[:30], b""):
        path.write_bytes(content)
        with pytest.raises(IndexMismatchError, match="cog index build tiny --force"):
            index.get_word_bits(np.zeros(1, np.uint64))
