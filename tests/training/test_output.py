"""What is trained is what is loaded: training model against loaded folder, score by score."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from cog.errors import CheckpointError
from cog.model.config import load_config
from cog.model.fingerprint import fingerprint_model
from cog.model.load import load_index_model, load_model
from cog.model.pieces import PieceBatch
from cog.model.weights import load_weights
from cog.training import output
from cog.training.model import TrainableModel
from cog.training.output import write_model
from tests.model_fixtures import make_tiny_model
from tests.training.trained import make_trainable, take_steps

TOKENS = [3, 17, 40, 41, 42, 99]
PIECES = torch.tensor([[2, 9, 30, 31, 8, 3]])
PARTS = {  # ranks of the prefix encoder and of the phrase encoder, 0: trained as a whole
    "low rank": {"prefix_lora_rank": 3, "phrase_lora_rank": 2},
    "whole": {"prefix_lora_rank": 0, "phrase_lora_rank": 0},
    "as cog-v0": {"prefix_lora_rank": 2, "phrase_lora_rank": 0, "train_word_embeddings": False},
    "paper": {"prefix_lora_rank": 0, "phrase_lora_rank": 0, "query_projection": False},
}


CASES = [
    ("llama", "low rank"),
    ("gpt2", "low rank"),
    ("llama", "whole"),
    ("llama", "as cog-v0"),
    ("gpt2", "paper"),
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("bases")
    return {name: make_tiny_model(root / name, architecture=name) for name in ("gpt2", "llama")}


@pytest.fixture(scope="module")
def bases(folders: dict[str, Path]) -> Path:
    return folders["gpt2"]


def write(model: TrainableModel, bases: Path, folder: Path) -> str:
    for name in ("prefix", "phrase"):
        shutil.copytree(bases / name, folder / name)
    return write_model(folder, model.trained_weights(), load_config(bases), {"steps": "3"})


@torch.no_grad()
def assert_same_scores(model: TrainableModel, folder: Path) -> None:
    encoder = load_model(folder).prefix_encoder
    found = encoder.append(encoder.new_cache(batch=1, capacity=8), [TOKENS])
    wanted = model.lm.base_model(input_ids=torch.tensor([TOKENS])).last_hidden_state[0]
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    head = model.lm.get_output_embeddings()
    torch.testing.assert_close(encoder.token_logits(found), head(wanted), atol=1e-4, rtol=1e-4)
    if model.bert is None:
        return
    queries = wanted if model.qproj is None else model.qproj(wanted)
    torch.testing.assert_close(
        torch.cat(encoder.phrase_queries(found), 1), queries, atol=1e-5, rtol=1e-5
    )
    index, mask = load_index_model(folder), torch.ones_like(PIECES)
    states = index.phrase_encoder.hidden_states(PieceBatch(PIECES, mask, [], [], 1))
    plain = model.bert(input_ids=PIECES, attention_mask=mask).last_hidden_state
    torch.testing.assert_close(states, plain, atol=1e-5, rtol=1e-5)
    for side in ("start", "end"):
        torch.testing.assert_close(
            getattr(index.phrase_encoder, side)(states), getattr(model, side)(plain)
        )


@pytest.mark.parametrize(("architecture", "part"), CASES)
def test_trained_folder_scores_as_the_model_in_training(
    folders: dict[str, Path], tmp_path: Path, architecture: str, part: str
) -> None:
    bases = folders[architecture]
    model = make_trainable(bases, **PARTS[part])
    before = {name: tensor.clone() for name, tensor in model.trained_weights().items()}
    take_steps(model)
    after = model.trained_weights()
    assert all(not torch.equal(before[name], after[name]) for name in before if ".A" in name)
    fingerprint = write(model, bases, tmp_path / "out")
    assert fingerprint_model(tmp_path / "out") == fingerprint
    assert_same_scores(model, tmp_path / "out")


@pytest.mark.parametrize(("architecture", "part"), CASES[1:])
def test_training_goes_on_from_a_folder_whatever_the_profile_says(
    folders: dict[str, Path], tmp_path: Path, architecture: str, part: str
) -> None:
    bases = folders[architecture]
    model = make_trainable(bases, **PARTS[part])
    take_steps(model)
    write(model, bases, tmp_path / "first")
    weights = load_weights(tmp_path / "first", load_config(tmp_path / "first"))
    embeddings = PARTS[part].get("train_word_embeddings", True)
    other = {"prefix_lora_rank": 5, "phrase_lora_rank": 5, "query_projection": False}
    other |= {"head_width": 7, "train_word_embeddings": embeddings}
    again = make_trainable(bases, weights=weights, **other).eval()
    assert_same_scores(again, tmp_path / "first")
    assert set(again.trained_weights()) == set(model.trained_weights())


def test_model_of_tokens_writes_but_has_no_index(bases: Path, tmp_path: Path) -> None:
    model = make_trainable(bases, copies=False, prefix_lora_rank=2)
    take_steps(model)
    write(model, bases, tmp_path / "out")
    assert_same_scores(model, tmp_path / "out")
    with pytest.raises(CheckpointError, match="needs phrase heads; found: a model of tokens only"):
        load_index_model(tmp_path / "out")
    assert "has no phrase heads" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


def test_shards_are_small_and_old_ones_go(
    bases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "MAX_SHARD_BYTES", 2000)
    model = make_trainable(bases, prefix_lora_rank=2, phrase_lora_rank=2)
    first = write(model, bases, tmp_path / "out")
    names = load_config(tmp_path / "out").weights
    assert len(names) > 3
    assert all((tmp_path / "out" / name).stat().st_size < 5000 for name in names)
    take_steps(model)
    second = write_model(
        tmp_path / "out", model.trained_weights(), load_config(bases), {"text": "a village"}
    )
    assert second != first
    files = {path.name for path in (tmp_path / "out").glob("*.safetensors")}
    assert files == set(load_config(tmp_path / "out").weights)
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert f"| fingerprint | {second} |" in card
    assert "| text | a village |" in card
    assert "low-rank updates of rank 2" in card


def test_same_weights_give_the_same_fingerprint(bases: Path, tmp_path: Path) -> None:
    model = make_trainable(bases)
    fingerprints = {write(model, bases, tmp_path / name) for name in ("one", "two")}
    assert len(fingerprints) == 1


def test_weight_beyond_half_precision_is_refused_and_the_old_model_stays(
    bases: Path, tmp_path: Path
) -> None:
    model = make_trainable(bases)
    write(model, bases, tmp_path / "out")
    with torch.no_grad():
        model.start.l1.weight[0, 0] = 1e6
    with pytest.raises(CheckpointError, match="others in start.l1.weight"):
        write_model(tmp_path / "out", model.trained_weights(), load_config(bases), {})
    load_index_model(tmp_path / "out")


def test_low_rank_updates_of_another_phrase_encoder_are_refused(
    bases: Path, tmp_path: Path
) -> None:
    model = make_trainable(bases, phrase_lora_rank=2)
    write(model, bases, tmp_path / "out")
    name = load_config(tmp_path / "out").weights[0]
    path = tmp_path / "out" / name
    weights = load_file(path)
    moved = {key.replace("encoder.layer.1", "encoder.layer.7"): t for key, t in weights.items()}
    save_file(moved, path)
    with pytest.raises(CheckpointError, match="no layer encoder.layer.7"):
        load_index_model(tmp_path / "out")
