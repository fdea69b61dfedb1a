"""Fitting the adapter: the loss falls, gates open, the past sees no future, it is used."""

import itertools
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from torch import nn

from cog.baselines.identity import identify_system
from cog.baselines.retro.batches import IGNORED, RetroBatches
from cog.baselines.retro.generator import RetroLoop
from cog.baselines.retro.neighbours import NeighbourSource
from cog.baselines.retro.training import (
    RetroSettings,
    RetroTrainer,
    fit_adapter,
    list_gates,
    make_adapter,
)
from cog.baselines.systems import open_system
from cog.cli.main import cli
from cog.decoding.request import Request
from cog.errors import CheckpointError, CogError, IndexNotBuiltError, TrainingError
from cog.index.reader import PhraseIndex
from cog.model.load import CogModel, load_model
from cog.params import load_params
from cog.paths import ProjectPaths
from cog.progress import SilentProgress
from cog.records import Decoding
from cog.training.schedule import Budget
from cog.training.stopping import StopRequest

SETTINGS = RetroSettings(
    chunk_tokens=8,
    num_neighbours=2,
    neighbour_tokens=12,
    continuation_tokens=8,
    num_cross_layers=2,
    encoder_layers=1,
    window_tokens=40,
    batch_windows=4,
    learning_rate=0.02,
)


@pytest.fixture
def batches(tiny_cog_model_alone: CogModel, village_index: PhraseIndex) -> RetroBatches:
    return RetroBatches(
        tiny_cog_model_alone,
        village_index,
        config=make_adapter(tiny_cog_model_alone, SETTINGS, seed=0).config,
        batch_windows=4,
        window_tokens=40,
        seed=0,
    )


@pytest.fixture
def trainer(tiny_cog_model_alone: CogModel) -> RetroTrainer:
    return RetroTrainer(tiny_cog_model_alone, make_adapter(tiny_cog_model_alone, SETTINGS, seed=0))


def open_gates(trainer: RetroTrainer) -> None:
    for layer in trainer.adapter.cross.values():
        nn.init.constant_(layer.gate, 1.0)


def fit(trainer: RetroTrainer, batches: Iterator[object], *, steps: int) -> float:
    outcome = fit_adapter(
        trainer,
        batches,  # type: ignore[arg-type]
        learning_rate=SETTINGS.learning_rate,
        budget=Budget(steps, None),
        stop=StopRequest(),
        progress=SilentProgress(),
    )
    assert outcome.steps == steps
    return outcome.last_loss


def test_the_loss_falls_and_gates_move_and_the_base_stays(
    trainer: RetroTrainer, batches: RetroBatches, tiny_cog_model_alone: CogModel
) -> None:
    some = list(itertools.islice(batches, 2))
    base = tiny_cog_model_alone.prefix_encoder.model
    before = {name: value.clone() for name, value in base.state_dict().items()}
    with torch.no_grad():
        first = sum(float(trainer.compute_loss(batch)) for batch in some)
    assert list_gates(trainer.adapter) == [0.0, 0.0]
    fit(trainer, itertools.cycle(some), steps=40)
    with torch.no_grad():
        last = sum(float(trainer.compute_loss(batch)) for batch in some)
    assert last < first - 0.1
    assert all(abs(gate) > 0.01 for gate in list_gates(trainer.adapter))
    assert all(torch.equal(value, before[name]) for name, value in base.state_dict().items())


def test_a_token_changes_no_earlier_state(trainer: RetroTrainer, batches: RetroBatches) -> None:
    open_gates(trainer)
    window = next(iter(batches)).inputs[0].tolist()
    assert len(window) > 20
    changed = [*window[:18], *reversed(window[18:])]
    assert changed != window
    with torch.no_grad():
        one, other = (
            trainer.compute_states(batches.make([ids], [0]))[0] for ids in (window, changed)
        )
    torch.testing.assert_close(one[:18], other[:18])
    assert not torch.allclose(one[18:], other[18:])


def test_training_sees_what_writing_sees(
    trainer: RetroTrainer,
    batches: RetroBatches,
    village: ProjectPaths,
    village_index: PhraseIndex,
) -> None:
    open_gates(trainer)
    window = next(iter(batches)).inputs[0].tolist()
    no_document = len(village_index.document_ids())
    with torch.no_grad():
        trained = trainer.compute_states(batches.make([window], [no_document]))[0]
    model = load_model(village.root / "models" / "tiny")
    adapter = make_adapter(model, SETTINGS, seed=0)
    adapter.load_state_dict(trainer.adapter.state_dict())
    source = NeighbourSource(village_index, model.retriever, config=adapter.config)
    loop = RetroLoop(model, adapter, source)
    loop.begin(1)
    last = loop.append_last(model.prefix_encoder.new_cache(batch=1, capacity=64), [window[:-1]])
    torch.testing.assert_close(last[0], trained[-1], rtol=1e-4, atol=1e-4)


def test_padding_and_short_windows_do_not_count(batches: RetroBatches) -> None:
    batch = batches.make([list(range(5, 15)), [5, 6, 7]], [0, 1])
    assert batch.num_tokens == 9 + 2
    assert batch.targets[1].tolist() == [6, 7, *[IGNORED] * 7]
    assert batch.token_memories.tolist() == [*[-1] * 7, 0, 0, *[-1] * 9]
    assert batch.neighbours is not None
    assert len(batch.neighbours.mask) == 1


def test_a_loss_that_is_not_finite_stops(trainer: RetroTrainer, batches: RetroBatches) -> None:
    open_gates(trainer)
    nn.init.constant_(trainer.adapter.encoder.positions, float("nan"))
    with pytest.raises(TrainingError, match="must be finite"):
        fit(trainer, iter(batches), steps=2)


@pytest.fixture
def own_village(village: ProjectPaths, tmp_path: Path) -> ProjectPaths:
    shutil.copytree(village.root, tmp_path / "own")
    return ProjectPaths(tmp_path / "own")


def test_what_the_command_trains_writes_text_as_a_system(own_village: ProjectPaths) -> None:
    params = load_params(own_village.params)
    words = ["--project", str(own_village.root), "retro", "train", "--device", "cpu", "--json"]
    with pytest.raises(CheckpointError, match="cog retro train"):
        identify_system(own_village, params, corpus_id="village", system="retro")
    done = CliRunner().invoke(cli, [*words, "--corpus", "village", "--max-steps", "2"])
    assert done.exception is None, done.exception
    report = json.loads(done.stdout)
    assert (report["steps"], report["reason"]) == (2, "budget")
    identity = identify_system(own_village, params, corpus_id="village", system="retro")
    cog = identify_system(own_village, params, corpus_id="village", system="cog")
    assert identity.index != cog.index
    assert identity.documents == cog.documents
    decoding = Decoding("greedy", 0.95, 0, 6, 16, 0.0)
    with open_system(
        own_village, params, corpus_id="village", system="retro", device="cpu"
    ) as system:
        text = system.generate([Request("The old mill", decoding)])[0]
    assert text.num_tokens == 6
    again = CliRunner().invoke(cli, [*words, "--corpus", "village", "--max-steps", "2"])
    assert isinstance(again.exception, CheckpointError)
    unbuilt = CliRunner().invoke(cli, [*words, "--corpus", "hamlet", "--out", "elsewhere"])
    assert isinstance(unbuilt.exception, IndexNotBuiltError)
    assert isinstance(unbuilt.exception, CogError)


def test_documents_shorter_than_a_chunk_are_refused(
    tiny_cog_model_alone: CogModel, village_index: PhraseIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cog.baselines.retro.batches.MAX_DRAWS", 3)
    wide = replace(SETTINGS, chunk_tokens=2000)
    batches = RetroBatches(
        tiny_cog_model_alone,
        village_index,
        config=make_adapter(tiny_cog_model_alone, wide, seed=0).config,
        batch_windows=1,
        window_tokens=40,
        seed=0,
    )
    with pytest.raises(TrainingError, match="over 2000 tokens"):
        next(iter(batches))
