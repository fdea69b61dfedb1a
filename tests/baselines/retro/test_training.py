"""Fitting the adapter: the loss falls, gates open, the past sees no future, runs go on."""

import itertools
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from cog.baselines.retro import job as job_module
from cog.baselines.retro.adapter import RetroAdapter, make_adapter
from cog.baselines.retro.batches import IGNORED, RetroBatch, RetroBatches, lay_out_windows
from cog.baselines.retro.config import make_config
from cog.baselines.retro.examples import RetroExamples
from cog.baselines.retro.folder import load_adapter
from cog.baselines.retro.generator import RetroLoop
from cog.baselines.retro.job import RetroJob, RetroReport, train_adapter
from cog.baselines.retro.neighbours import NeighbourSource, lay_out, read_chunk
from cog.baselines.retro.trainee import RetroObjective, RetroTrainee, measure
from cog.errors import CheckpointError, ParamsError, TrainingError
from cog.index.read.reader import PhraseIndex
from cog.model.load import CogModel, load_model
from cog.params import RetroParams, load_params
from cog.paths import ProjectPaths
from cog.progress import SilentProgress
from cog.training.checkpoint import find_checkpoints
from cog.training.schedule import Budget
from tests.told import Told
from tests.training.making import read_losses

SIZE = 8  # tokens of a chunk in the tiny project


@pytest.fixture
def batches(examples: RetroExamples, settings: RetroParams) -> RetroBatches:
    four = replace(settings, windows_per_batch=4)
    return RetroBatches(examples, examples.list_learnable(), four)


@pytest.fixture
def trainee(tiny_cog_model_alone: CogModel, settings: RetroParams) -> RetroTrainee:
    adapter = make_adapter(make_config(tiny_cog_model_alone, settings), seed=0)
    return RetroTrainee(tiny_cog_model_alone, adapter, is_half=False)


def open_gates(adapter: RetroAdapter) -> None:
    for layer in adapter.cross.values():
        nn.init.constant_(layer.gate, 1.0)


def test_the_loss_falls_and_gates_move_and_the_base_stays(
    trainee: RetroTrainee, batches: RetroBatches
) -> None:
    some = [batches.make(number) for number in range(2)]
    before = {name: value.clone() for name, value in trainee.network.state_dict().items()}
    first = measure(trainee, some, alone=None)
    assert first["loss"] == pytest.approx(first["loss_without"])
    objective = RetroObjective(trainee, learning_rate=0.02, gate_rate=0.02)
    assert objective.describe(some) == {"gate": 0.0}
    optimizer = torch.optim.AdamW(objective.group_parameters())
    for step in range(40):
        objective.compute_losses(trainee, some[step % 2])["loss"].backward()
        optimizer.step()
        optimizer.zero_grad()
    last = measure(trainee, some, alone=first["loss_without"])
    assert last["loss"] < first["loss"] - 0.1
    assert last["loss"] < last["loss_of_others"]
    assert all(abs(gate) > 0.01 for gate in trainee.adapter.gates)
    after = trainee.network.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_a_token_changes_no_earlier_state(trainee: RetroTrainee, examples: RetroExamples) -> None:
    open_gates(trainee.adapter)
    number = int(np.argmax(np.diff(examples.window_offsets)))
    window = examples.get_window(number)
    changed = window.copy()
    changed[18:] = window[18:][::-1]
    # the chunks that the change does not touch keep their neighbours; the others get other ones
    own = examples.get_neighbours(number)
    other = np.concatenate(
        [
            own[:2],
            own[2:][::-1, ::-1],
        ]
    )
    other[2:] = own[0]
    states = []
    for ids, neighbours in ((window, own), (changed, other)):
        batch = lay_out_windows(
            0,
            [ids],
            owners=np.arange(len(neighbours)),
            neighbours=lay_out(neighbours, examples.read(neighbours)),
            documents=np.array([0]),
            chunk_tokens=SIZE,
        )
        with torch.no_grad():
            states.append(trainee.compute_states(batch, trainee.read_memory(batch))[0])
    num_same = 18 - (SIZE - 1)
    torch.testing.assert_close(states[0][:num_same], states[1][:num_same])
    assert not torch.allclose(states[0][num_same:], states[1][num_same:])


def test_training_sees_what_writing_sees(
    trainee: RetroTrainee,
    examples: RetroExamples,
    village: ProjectPaths,
    village_index: PhraseIndex,
) -> None:
    open_gates(trainee.adapter)
    model = load_model(village.root / "models" / "tiny", keeps_modules=True)
    adapter = RetroAdapter(trainee.adapter.config)
    adapter.load_state_dict(trainee.adapter.state_dict())
    source = NeighbourSource(village_index, model, config=adapter.config)
    window = examples.get_window(0)
    begin = model.prefix_encoder.begin_token_id
    texts = [
        read_chunk(model.splitter, window[first : first + SIZE].tolist(), begin_token_id=begin)
        for first in range(0, len(window) - SIZE, SIZE)
    ]
    found = source.find(texts)  # of its own document too, as in writing
    batch = lay_out_windows(
        0,
        [window],
        owners=np.arange(len(found)),
        neighbours=lay_out(found, source.read(found)),
        documents=np.array([0]),
        chunk_tokens=SIZE,
    )
    with torch.no_grad():
        trained = trainee.compute_states(batch, trainee.read_memory(batch))[0]
    loop = RetroLoop(model, adapter, source)
    loop.begin(1)
    cache = model.prefix_encoder.new_cache(batch=1, capacity=64)
    last = loop.append_last(cache, [window[:-1].tolist()])
    torch.testing.assert_close(last[0], trained[-1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("num_chunks", [2, 3, 4])
def test_neighbours_of_another_chunk_are_never_those_of_the_own(
    trainee: RetroTrainee, examples: RetroExamples, num_chunks: int
) -> None:
    open_gates(trainee.adapter)
    ids = examples.get_window(int(np.argmax(np.diff(examples.window_offsets))))
    chosen = np.unique(examples.neighbours[examples.neighbours >= 0])[:num_chunks, None]
    batch = lay_out_windows(
        0,
        [ids[: num_chunks * SIZE + 1]],
        owners=np.arange(num_chunks),
        neighbours=lay_out(chosen, examples.read(chosen)),
        documents=np.array([0]),
        chunk_tokens=SIZE,
    )
    others = trainee.read_memory(batch, is_shifted=True)
    assert others is not None
    assert others.placement.num_seen == len(batch.token_memories)
    seen = others.placement.seen
    order = np.arange(others.placement.num_seen) if seen is None else seen.numpy()
    assert (others.placement.owners.numpy() != batch.token_memories[order]).all()


def test_padding_does_not_count() -> None:
    rows = [np.arange(5, 25, dtype=np.int32), np.arange(5, 15, dtype=np.int32)]
    batch = lay_out_windows(
        0,
        rows,
        owners=np.array([0, -1, 1]),
        neighbours=None,
        documents=np.array([0, 1]),
        chunk_tokens=SIZE,
    )
    assert batch.read_ids.tolist() == [list(range(5, 12)), list(range(5, 12))]
    assert batch.num_tokens == 12 + 2
    assert batch.learnt_ids[1].tolist() == [12, 13, *[0] * 10]
    assert batch.targets[1].tolist() == [13, 14, *[IGNORED] * 10]
    memories = batch.token_memories.reshape(2, -1)
    assert memories[0].tolist() == [*[0] * 8, *[-1] * 4]
    assert memories[1].tolist() == [1, 1, *[-1] * 10]


@pytest.fixture
def own_village(village: ProjectPaths, tmp_path: Path) -> ProjectPaths:
    shutil.copytree(village.root, tmp_path / "own")
    return ProjectPaths(tmp_path / "own")


def run(paths: ProjectPaths, out: Path, *, progress: Any = None, **given: Any) -> RetroReport:  # noqa: ANN401
    params = load_params(paths.params)
    changes = given.pop("settings", {})
    job = RetroJob(
        corpus_id="village",
        settings=replace(params.retro, **changes),
        budget=Budget(given.pop("steps", None), given.pop("seconds", None)),
        out=out,
        is_resumed=given.pop("is_resumed", False),
        device="cpu",
    )
    return train_adapter(paths, params, job, progress=progress or SilentProgress(), log=None)


def is_loadable(paths: ProjectPaths, out: Path) -> bool:
    model = load_model(paths.root / "models" / "tiny", keeps_modules=True)
    adapter = load_adapter(out, model=model.fingerprint)
    return all(bool(value.isfinite().all()) for value in adapter.state_dict().values())


def test_a_run_that_goes_on_has_the_losses_of_one_that_never_stopped(
    own_village: ProjectPaths, tmp_path: Path
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    wanted = run(own_village, whole, steps=7)
    with pytest.raises(MemoryError):
        run(own_village, parts, steps=7, progress=Told(break_at=5))
    assert is_loadable(own_village, parts)
    kept = find_checkpoints(parts / "run" / "checkpoints")
    assert [each.name for each in kept] == ["step-00000003"]
    found = run(own_village, parts, steps=7, is_resumed=True)
    assert read_losses(parts) == read_losses(whole)
    assert list(read_losses(parts)) == [1, 2, 3, 4, 5, 6, 7]
    assert found.validation == wanted.validation
    assert set(found.validation) == {
        "validation/loss",
        "validation/loss_of_others",
        "validation/loss_without",
    }
    assert found.gates == wanted.gates
    name = "adapter.safetensors"
    assert (parts / name).read_bytes() == (whole / name).read_bytes()
    with pytest.raises(CheckpointError, match="free for a new run; found: step-00000007"):
        run(own_village, parts, steps=9)
    with pytest.raises(CheckpointError, match="with chunk_tokens 9; found: .* chunk_tokens 8"):
        run(own_village, parts, steps=9, is_resumed=True, settings={"chunk_tokens": 9})


def test_a_run_by_seconds_ends_with_an_adapter(
    own_village: ProjectPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = itertools.count()  # every look at the clock finds a hundredth of a second gone
    monkeypatch.setattr("cog.training.reporting.time.monotonic", lambda: next(reads) / 100)
    report = run(own_village, tmp_path / "out", seconds=0.5)
    assert report.reason == "budget"
    assert 0.3 < report.seconds < 0.6  # those of the last step that was finished
    assert report.tokens_per_second > 0
    assert is_loadable(own_village, tmp_path / "out")


def test_an_undefined_loss_stops_and_keeps_the_last_good_adapter(
    own_village: ProjectPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Spoilt(RetroObjective):
        calls = 0

        def compute_losses(self, network: nn.Module, batch: RetroBatch) -> Mapping[str, Tensor]:
            self.calls += 1
            losses = super().compute_losses(network, batch)
            return {"loss": losses["loss"] * (torch.nan if self.calls == 5 else 1.0)}

    monkeypatch.setattr(job_module, "RetroObjective", Spoilt)
    out = tmp_path / "out"
    with pytest.raises(TrainingError, match=r"finite at step 5; found: loss nan, .* on batch 4 of"):
        run(own_village, out, steps=7)
    kept = find_checkpoints(out / "run" / "checkpoints")
    assert [each.name for each in kept] == ["step-00000003"]
    assert list(read_losses(out)) == [1, 2, 3, 4]
    assert is_loadable(own_village, out)


def test_a_layer_that_the_model_lacks_is_refused(own_village: ProjectPaths, tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=r"layer must be a layer .*; found: 9 of 2 layers"):
        run(own_village, tmp_path / "out", steps=1, settings={"first_cross_layer": 9})
    assert not (tmp_path / "out").exists()


def test_documents_shorter_than_a_chunk_are_refused(
    own_village: ProjectPaths, tmp_path: Path
) -> None:
    changes = {"chunk_tokens": 2000, "window_tokens": 4000}
    with pytest.raises(TrainingError, match="of over 2000 tokens; found: none in village"):
        run(own_village, tmp_path / "out", steps=1, settings=changes)


def test_no_second_document_to_learn_from_is_refused(
    own_village: ProjectPaths, tmp_path: Path
) -> None:
    with pytest.raises(TrainingError, match="not held out, .* found: 1 of over 8 tokens in vill"):
        run(own_village, tmp_path / "out", steps=1, settings={"held_out_share": 0.95})


def test_half_precision_is_near_single(village: ProjectPaths, tmp_path: Path) -> None:
    single = run(village, tmp_path / "single", steps=2, settings={"precision": "float32"})
    half = run(village, tmp_path / "half", steps=2, settings={"precision": "bfloat16"})
    assert half.metrics["loss"] == pytest.approx(single.metrics["loss"], rel=0.02)
    assert half.metrics["loss"] != single.metrics["loss"]
