"""Words against rules spelled out by hand, and the exactness of offsets."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from cog.errors import CheckpointError
from cog.model.words import (
    BARRED,
    CAN_END,
    CAN_START,
    SPECIFIC,
    WordSplitter,
    flag_words,
    load_tokenizer,
)


@pytest.fixture(scope="module")
def splitter(tiny_model: Path) -> WordSplitter:
    return WordSplitter.from_folder(tiny_model / "prefix")


def words_of(splitter: WordSplitter, text: str) -> list[str]:
    bounds = splitter.split(text).word_chars.tolist()
    return [text[a:b] for a, b in zip(bounds[:-1], bounds[1:], strict=True)]


def test_words_carry_their_leading_space_and_stop_at_punctuation(splitter: WordSplitter) -> None:
    text = "The mill, on the river-bank (1992).\nBread"
    expected = [
        "The",
        " mill",
        ",",
        " on",
        " the",
        " river",
        "-",
        "bank",
        " ",
        "(",
        "1992",
        ")",
        ".",
        "\n",
        "Bread",
    ]
    assert words_of(splitter, text) == expected


def test_space_of_its_own_does_not_end_a_word(splitter: WordSplitter) -> None:
    assert words_of(splitter, "in 1992") == [
        "in",
        " 1992",
    ]  # " " and digits are tokens of their own


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60))
def test_words_tile_any_text_and_tokens_spell_it(splitter: WordSplitter, text: str) -> None:
    words = splitter.split(text)
    assert "".join(words_of(splitter, text)) == text
    assert splitter.decode(words.token_ids) == text.encode()
    for k in range(words.num_words):
        ids = words.token_ids[words.word_tokens[k] : words.word_tokens[k + 1]]
        assert splitter.decode(ids).decode() == text[words.word_chars[k] : words.word_chars[k + 1]]


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60))
def test_token_chars_cover_any_text_in_order(splitter: WordSplitter, text: str) -> None:
    spans = splitter.token_chars(text)
    covered = 0
    for start, end in spans:
        assert start <= covered <= end
        covered = max(covered, end)
    assert covered == len(text)


def test_special_token_in_a_document_is_text(splitter: WordSplitter) -> None:
    ids = splitter.encode("<|begin|>")
    assert 0 not in ids
    assert splitter.decode(ids) == b"<|begin|>"


def test_flags_follow_the_rule_of_admissible_phrases(splitter: WordSplitter) -> None:
    text = "The mill, 7% of.\n(bread) <unk> end"
    words = splitter.split(text)
    flags = dict(
        zip(words_of(splitter, text), flag_words(text, words.word_chars).tolist(), strict=True)
    )
    free, start, end, barred = 0, int(CAN_START), int(CAN_END), int(BARRED)
    assert flags[" mill"] == flags[" end"] == start | end
    assert flags["The"] == flags[" 7"] == start | end | int(SPECIFIC)
    assert flags[","] == flags["%"] == flags["("] == flags[")"] == free
    assert flags["."] == flags["\n"] == barred
    assert all(flags[word] & barred for word in ("<", "unk", ">"))


@pytest.mark.parametrize(
    ("word", "is_specific"),
    [
        *((w, True) for w in (" Berlin", "EU", " Élan", " Ж", " 7", " x2", "٣", " B")),
        *((w, False) for w in (" mill", "iPhone", "-", " ", " (", "\n", " 東京", "é")),
    ],
)
def test_names_and_numbers_are_specific(word: str, is_specific: bool) -> None:
    (flag,) = flag_words(word, np.array([0, len(word)], dtype=np.int32))
    assert bool(flag & SPECIFIC) == is_specific


def test_flags_of_no_words_are_none() -> None:
    assert len(flag_words("", np.zeros(1, dtype=np.int32))) == 0


def test_tokens_without_a_string_are_unwritable(tiny_model: Path) -> None:
    tokenizer = load_tokenizer(tiny_model / "prefix")
    size = tokenizer.get_vocab_size()
    whole = WordSplitter(tokenizer)
    assert whole.list_unwritable(size).tolist() == [0]
    assert whole.list_unwritable(size + 2).tolist() == [0, size, size + 1]
    content = json.loads(tokenizer.to_str())
    content["model"]["vocab"] = {
        token: i + 2 * (i > 300) for token, i in content["model"]["vocab"].items()
    }
    gaps = WordSplitter(Tokenizer.from_str(json.dumps(content)))
    assert gaps.list_unwritable(size + 2).tolist() == [0, 301, 302]
    assert gaps.list_unwritable(301).tolist() == [0]


def test_vocabulary_that_is_not_byte_level_is_refused(tiny_model: Path) -> None:
    with pytest.raises(CheckpointError, match="byte-level"):
        WordSplitter.from_folder(tiny_model / "phrase")


def test_folder_without_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        WordSplitter.from_folder(tmp_path)
