"""Tokens of a text's pieces against those of the text at once."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, normalizers, pre_tokenizers

from cog.model import tokens
from cog.model.tokens import TokenEncoder, cut_text, may_cut
from cog.model.words import load_tokenizer

SPACES = " \n\r\t\x0b\x1c\x1f\x85\u00a0\u1680\u2003\u2028\u202f\u3000\u200b\ufeff"
MARKS = ".,'-_(\u2019\u0301\u00b2"
TEXTS = st.text(alphabet="ab1\u00e9\u4e2d\u0660s" + MARKS + " " * 9 + SPACES, max_size=40)


def read(folder: Path) -> Tokenizer:
    tokenizer = load_tokenizer(folder / "prefix")
    tokenizer.encode_special_tokens = True
    return tokenizer


def with_digits(tokenizer: Tokenizer) -> None:
    rules = [pre_tokenizers.Digits(individual_digits=True), tokenizer.pre_tokenizer]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(rules)


def with_composition(tokenizer: Tokenizer) -> None:
    tokenizer.normalizer = normalizers.NFC()


def with_nothing(_tokenizer: Tokenizer) -> None:
    """Leave a tokenizer as it is."""


@pytest.fixture(scope="module", params=[with_nothing, with_digits, with_composition])
def pair(tiny_model: Path, request: pytest.FixtureRequest) -> tuple[Tokenizer, TokenEncoder]:
    plain, cutting = read(tiny_model), read(tiny_model)
    request.param(plain)
    request.param(cutting)
    encoder = TokenEncoder(cutting)
    assert encoder.is_cutting
    return plain, encoder


@settings(max_examples=200, deadline=None)
@given(text=TEXTS | st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40))
def test_tokens_of_the_pieces_are_those_of_the_text(
    pair: tuple[Tokenizer, TokenEncoder], text: str
) -> None:
    plain, encoder = pair
    wanted = plain.encode(text, add_special_tokens=False).ids
    assert encoder.encode(text).tolist() == wanted
    assert encoder.encode(text).tolist() == wanted  # and when its pieces are known


def test_text_is_cut_before_single_spaces() -> None:
    assert cut_text("The old  mill.\n On it ") == ["The", " old", "  mill.\n On", " it", " "]
    assert cut_text(" on it ") == [" on", " it", " "]
    assert cut_text("") == []


def test_memory_is_bounded(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MAX_KNOWN", 10)
    plain, encoder = read(tiny_model), TokenEncoder(read(tiny_model))
    for first in range(0, 100, 5):
        text = f"{'long' * 20} " + " ".join(f"w{first + i}" for i in range(5))
        assert encoder.encode(text).tolist() == plain.encode(text, add_special_tokens=False).ids
        assert len(encoder._known) <= 10 + 5  # noqa: SLF001
    assert f"{'long' * 20}" not in encoder._known  # noqa: SLF001


def test_unknown_rules_are_never_cut(tiny_model: Path) -> None:
    changed = [read(tiny_model) for _ in range(5)]
    changed[0].pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    changed[1].pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    changed[2].add_tokens([AddedToken("the mill", normalized=False)])
    changed[3].normalizer = normalizers.Replace(" b", "c")
    changed[4].encode_special_tokens = False
    assert may_cut(read(tiny_model))
    for tokenizer in changed:
        assert not may_cut(tokenizer)
        wanted = tokenizer.encode("on the mill b", add_special_tokens=False).ids
        assert TokenEncoder(tokenizer).encode("on the mill b").tolist() == wanted
