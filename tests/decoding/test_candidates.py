"""Phrases against a plain loop over all spans."""

import numpy as np
import pytest

from cog.decoding.candidates import Phrases, find_phrases
from tests.decoding.synthetic import make_chunks, plain_phrases


def spans_of(phrases: Phrases) -> list[tuple[int, int]]:
    return [phrases.span(i) for i in range(len(phrases))]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("min_words", "max_words"), [(2, 8), (1, 3), (4, 4)])
def test_phrases_are_all_admissible_spans_grouped_by_text(
    seed: int, min_words: int, max_words: int
) -> None:
    chunks, words = make_chunks(seed)
    phrases = find_phrases(chunks, min_words=min_words, max_words=max_words)
    spans = spans_of(phrases)
    assert sorted(spans) == sorted(plain_phrases(chunks, min_words=min_words, max_words=max_words))
    assert phrases.begin_words.tolist() == sorted({first for first, _ in spans})
    assert phrases.end_words.tolist() == sorted({last for _, last in spans})

    groups: dict[str, set[tuple[int, int]]] = {}
    for first, last in spans:
        groups.setdefault("".join(words[first : last + 1]), set()).add((first, last))
    assert phrases.num_texts == len(groups)
    found = [[spans[i] for i in phrases.occurrences(text)] for text in range(phrases.num_texts)]
    assert sorted(map(sorted, found)) == sorted(map(sorted, groups.values()))
    assert phrases.num_repeated == sum(len(group) for group in groups.values() if len(group) > 1)
    # of one text the places come in their order, so that a tie cites the first everywhere
    assert all(places == sorted(places) for places in found)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("min_bits", [0.0, 4.0, 7.0, 9.0])
def test_a_phrase_needs_information_as_a_whole(seed: int, min_bits: float) -> None:
    chunks, _ = make_chunks(seed)
    bits = np.random.default_rng(seed).integers(0, 10, len(chunks.word_flags)) / np.float32(2)
    rule = {"min_words": 2, "max_words": 4, "word_bits": bits, "min_bits": min_bits}
    wanted = plain_phrases(chunks, **rule)
    assert sorted(spans_of(find_phrases(chunks, **rule))) == sorted(wanted)
    num_phrases = len(plain_phrases(chunks, min_words=2, max_words=4))
    assert (len(wanted) < num_phrases) == (min_bits > 0.0)
    assert wanted
    assert len(find_phrases(chunks, **rule | {"min_bits": 99.0})) == 0


@pytest.mark.parametrize("seed", range(5))
def test_unsummed_phrases_are_texts_of_their_own(seed: int) -> None:
    chunks, _ = make_chunks(seed)
    summed = find_phrases(chunks, min_words=2, max_words=4)
    alone = find_phrases(chunks, min_words=2, max_words=4, is_summed=False)
    assert sorted(spans_of(alone)) == sorted(spans_of(summed))
    assert alone.num_texts == len(alone) == len(summed) > summed.num_texts
    assert all(alone.occurrences(text) == range(text, text + 1) for text in range(len(alone)))


def test_chunks_without_words_give_no_phrases() -> None:
    chunks, _ = make_chunks(0, lengths=())
    phrases = find_phrases(chunks, min_words=2, max_words=8)
    assert (phrases.num_texts, len(phrases)) == (0, 0)


def test_phrases_never_cross_chunks() -> None:
    chunks, _ = make_chunks(3, lengths=(1,) * 30)
    assert find_phrases(chunks, min_words=2, max_words=8).num_texts == 0
