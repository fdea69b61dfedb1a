"""Frequent words and telling phrases, against plain counting."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from cog.index.read import information
from cog.index.read.information import measure_information
from cog.index.read.reader import PhraseIndex
from cog.index.tables.word_counts import get_form
from cog.model.words import BARRED, CAN_END, CAN_START


def test_words_and_phrases_are_those_of_plain_counting(
    index: PhraseIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(information, "NUM_FREQUENT", 1 << 30)
    gathered = index.gather_chunks(np.arange(index.num_chunks))
    documents = index.get_documents(range(40))
    bits = index.get_word_bits(gathered.word_hashes)
    words: Counter[str] = Counter()
    phrases: dict[str, list[float]] = {}
    for chunk, (first, last) in enumerate(pairwise(gathered.word_offsets.tolist())):
        text = documents[int(gathered.document_ordinals[chunk])].text
        for i in range(first, last):
            start = int(gathered.word_chars[i, 0])
            if gathered.word_flags[i] & CAN_START:
                words[get_form(text[start : gathered.word_chars[i, 1]])] += 1
            for j in range(i + 2, min(i + 4, last) + 1):
                flags = gathered.word_flags[i:j]
                if (flags & BARRED).any() or not (flags[0] & CAN_START and flags[-1] & CAN_END):
                    continue
                phrase = text[start : gathered.word_chars[j - 1, 1]].removeprefix(" ")
                phrases.setdefault(phrase, []).append(float(bits[i:j].sum()))
    repeated = {phrase: found for phrase, found in phrases.items() if len(found) > 1}
    found = measure_information(index, top_k=5)
    assert (found.num_words, found.num_read) == (index.num_words, len(bits))
    wanted = sorted(words.values(), reverse=True)[:5]
    assert [each.count for each in found.frequent_words] == wanted
    assert all(words[each.text] == each.count for each in found.frequent_words)
    for best, sign in ((found.most, 1), (found.least, -1)):
        assert [each.bits for each in best] == sorted((e.bits for e in best), reverse=sign == 1)
        extreme = max(sign * each[0] for each in repeated.values())
        assert sign * best[0].bits == pytest.approx(extreme, abs=0.01)
        for each in best:
            assert each.count == len(repeated[each.text])
            assert each.bits == pytest.approx(repeated[each.text][0], abs=0.01)


def test_a_large_index_is_read_in_part(index: PhraseIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(information, "MAX_WORDS", 1)
    found = measure_information(index, top_k=3)
    assert 0 < found.num_read <= found.num_words
    assert len(found.frequent_words) == 3
