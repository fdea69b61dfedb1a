"""Small base models made on the spot load as any base does."""

from pathlib import Path

import pytest
import torch

from cog.model.modules import load_bidirectional, load_causal
from cog.model.random_base import (
    learn_byte_tokenizer,
    learn_piece_tokenizer,
    make_random_base,
)
from cog.model.words import WordSplitter, load_tokenizer
from cog.profiles import RandomBase
from tests.model_fixtures import TEXTS

SIZES = {"width": 16, "num_layers": 1, "num_heads": 2, "vocab_size": 400, "max_positions": 64}


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_causal_base_loads_and_splits_words(tmp_path: Path, architecture: str) -> None:
    base = RandomBase(architecture, **SIZES)
    make_random_base(base, tmp_path / "a", texts=TEXTS, seed=1)
    make_random_base(base, tmp_path / "b", texts=TEXTS, seed=1)
    first, second = load_causal(tmp_path / "a"), load_causal(tmp_path / "b")
    for one, two in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(one, two)
    words = WordSplitter.from_folder(tmp_path / "a").split("The river, né 1900?")
    assert words.num_words == 6
    assert first.config.vocab_size <= 400
    text = (tmp_path / "a" / "tokenizer.json").read_bytes()
    assert text == (tmp_path / "b" / "tokenizer.json").read_bytes()


def test_bidirectional_base_loads(tmp_path: Path) -> None:
    make_random_base(RandomBase("bert", **SIZES), tmp_path / "a", texts=TEXTS, seed=1)
    bert = load_bidirectional(tmp_path / "a")
    ids = torch.tensor([load_tokenizer(tmp_path / "a").encode("the river").ids])
    assert ids[0, 0] == 2
    assert bert(input_ids=ids).last_hidden_state.shape == (1, 4, 16)


def test_seed_decides_the_weights_and_the_caller_s_generator_is_left_alone(tmp_path: Path) -> None:
    state = torch.random.get_rng_state()
    for seed in (1, 2):
        make_random_base(RandomBase("llama", **SIZES), tmp_path / str(seed), texts=TEXTS, seed=seed)
    assert torch.equal(state, torch.random.get_rng_state())
    one, two = (load_causal(tmp_path / str(seed)).get_input_embeddings() for seed in (1, 2))
    assert not torch.equal(one.weight, two.weight)


def test_frequent_words_become_tokens() -> None:
    texts = ["river market river market river"] * 3
    tokenizer = learn_byte_tokenizer(texts, vocab_size=300)
    assert len(tokenizer.encode(" river", add_special_tokens=False).ids) == 1
    assert tokenizer.decode(tokenizer.encode("zèbre").ids) == "zèbre"
    pieces = learn_piece_tokenizer(texts, vocab_size=100)
    assert pieces.encode("River market", add_special_tokens=False).tokens == ["river", "market"]
    assert pieces.encode("riverm", add_special_tokens=False).tokens == ["river", "##m"]
