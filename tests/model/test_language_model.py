"""The states that MAUVE compares: those of the last token, by layer, against a plain pass."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BloomConfig, BloomForCausalLM

from cog.errors import ParamsError
from cog.model.language_model import LanguageModel, load_language_model

TEXTS = ["The mill stands by the river.", "Rain.", "A long way round the old stone bridge"]


@pytest.fixture(scope="module")
def model(tiny_model: Path) -> LanguageModel:
    return load_language_model(tiny_model / "prefix", device="cpu")


@torch.inference_mode()
def states_of(model: LanguageModel, text: str, layer: int) -> np.ndarray:
    ids = torch.tensor([model.encode(text)])
    state = model.body(input_ids=ids, output_hidden_states=True).hidden_states[layer][0, -1]
    return (state / state.norm()).numpy()


@pytest.mark.parametrize("layers", [(-1,), (0, 1), (1, -1)])
def test_layers_lie_side_by_side_each_of_length_1(
    model: LanguageModel, layers: tuple[int, ...]
) -> None:
    found = model.encode_last(TEXTS, layers=layers, max_tokens=100)
    wanted = [np.concatenate([states_of(model, text, each) for each in layers]) for text in TEXTS]
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_a_model_that_tells_positions_by_distance_reads_any_number(
    tiny_model: Path, tmp_path: Path
) -> None:
    shutil.copy(tiny_model / "prefix" / "tokenizer.json", tmp_path)
    sizes = {"vocab_size": 500, "hidden_size": 16, "n_layer": 2, "n_head": 2}
    BloomForCausalLM(BloomConfig(**sizes)).save_pretrained(tmp_path)
    model = load_language_model(tmp_path, device="cpu")
    found = model.encode_last(TEXTS, layers=(-1,), max_tokens=100)
    np.testing.assert_allclose(found, [states_of(model, text, -1) for text in TEXTS], atol=1e-5)


@pytest.mark.parametrize(("layers", "said"), [((1, 99), "99"), ((-40,), "-40"), ((), "none")])
def test_a_layer_that_the_model_has_not_is_refused(
    model: LanguageModel, layers: tuple[int, ...], said: str
) -> None:
    with pytest.raises(ParamsError, match=rf"featuriser_layers must be from .*found: {said}"):
        model.encode_last(TEXTS, layers=layers, max_tokens=100)
