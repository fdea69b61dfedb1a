"""Phrases against a plain loop over all spans."""

import numpy as np
import pytest

from cog.decoding.candidates import find_phrases
from tests.decoding.synthetic import make_chunks, plain_phrases


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("min_words", "max_words"), [(2, 8), (1, 3), (4, 4)])
def test_phrases_are_all_admissible_spans_grouped_by_text(
    seed: int, min_words: int, max_words: int
) -> None:
    chunks, words = make_chunks(seed)
    phrases = find_phrases(chunks, min_words=min_words, max_words=max_words)
    spans = list(zip(phrases.first.tolist(), phrases.last.tolist(), strict=True))
    assert sorted(spans) == sorted(plain_phrases(chunks, min_words=min_words, max_words=max_words))

    groups = {}
    for first, last in spans:
        groups.setdefault("".join(words[first : last + 1]), set()).add((first, last))
    assert phrases.num_texts == len(groups)
    found = [{spans[i] for i in phrases.occurrences(text)} for text in range(phrases.num_texts)]
    assert sorted(map(sorted, found)) == sorted(map(sorted, groups.values()))
    assert phrases.num_repeated == sum(len(group) for group in groups.values() if len(group) > 1)


def test_chunks_without_words_give_no_phrases() -> None:
    chunks, _ = make_chunks(0, lengths=())
    phrases = find_phrases(chunks, min_words=2, max_words=8)
    assert (phrases.num_texts, len(phrases.first)) == (0, 0)


def test_phrases_never_cross_chunks() -> None:
    chunks, _ = make_chunks(3, lengths=(1,) * 30)
    assert find_phrases(chunks, min_words=2, max_words=8).num_texts == 0
    assert np.array_equal(chunks.word_offsets, np.arange(31))
