import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from cog.errors import CheckpointError
from cog.training.checkpoint import (
    RunIdentity,
    RunPosition,
    find_checkpoints,
    get_random_states,
    load_checkpoint,
    save_checkpoint,
)

IDENTITY = RunIdentity({"prefix_lora_rank": 4, "width": 8}, "abc", {"seed": 0})


class Net(nn.Module):
    """A network of which one half is never trained."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.trained = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 1))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.trained(self.frozen(inputs))
        return found


def take_steps(net: Net, optimizer: torch.optim.Optimizer, num: int) -> list[float]:
    losses = []
    for _ in range(num):
        loss = net(torch.randn(4, 8)).square().mean()  # inputs and dropout are random
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def make(seed: int = 0) -> tuple[Net, torch.optim.Optimizer]:
    net = Net(seed)
    return net, torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=0.1)


def save(folder: Path, net: Net, optimizer: torch.optim.Optimizer, step: int) -> Path:
    position = RunPosition(step, 1.5, 100)
    return save_checkpoint(
        folder,
        model=net,
        optimizer=optimizer,
        position=position,
        identity=IDENTITY,
        random_states=[get_random_states()],
    )


def load(
    checkpoint: Path,
    net: nn.Module,
    optimizer: torch.optim.Optimizer,
    identity: RunIdentity = IDENTITY,
) -> RunPosition:
    return load_checkpoint(checkpoint, model=net, optimizer=optimizer, identity=identity, process=0)


def test_run_goes_on_exactly(tmp_path: Path) -> None:
    net, optimizer = make()
    take_steps(net, optimizer, 3)
    checkpoint = save(tmp_path, net, optimizer, 3)
    wanted = take_steps(net, optimizer, 4)
    other, other_optimizer = make(seed=0)
    with torch.no_grad():
        other.trained[0].weight.add_(1.0)  # type: ignore[operator]
    torch.manual_seed(99)
    position = load(checkpoint, other, other_optimizer)
    assert position == RunPosition(3, 1.5, 100)
    assert take_steps(other, other_optimizer, 4) == wanted


def test_only_the_newest_two_are_kept_and_unfinished_ones_do_not_count(tmp_path: Path) -> None:
    net, optimizer = make()
    for step in (5, 10, 20, 100):
        save(tmp_path, net, optimizer, step)
    (tmp_path / ".step-00000200~1").mkdir()
    (tmp_path / "step-00000300").mkdir()  # without what makes it whole
    names = [path.name for path in find_checkpoints(tmp_path)]
    assert names == ["step-00000020", "step-00000100"]
    assert find_checkpoints(tmp_path / "missing") == []


def test_frozen_weights_are_not_saved(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    net, optimizer = make()
    names = set(load_file(save(tmp_path, net, optimizer, 1) / "weights.safetensors"))
    assert names == {f"trained.{layer}.{kind}" for layer in (0, 2) for kind in ("weight", "bias")}


@pytest.mark.parametrize(
    ("identity", "said"),
    [
        (
            replace(IDENTITY, architecture={"prefix_lora_rank": 32, "width": 8}),
            r"of a model with prefix_lora_rank 32; found: step-00000001 with prefix_lora_rank 4;",
        ),
        (replace(IDENTITY, examples="xyz"), r"this text, examples xyz; found: .* examples abc"),
        (replace(IDENTITY, batches={"seed": 7}), r"a run with seed 7; found: .* with seed 0"),
    ],
    ids=["architecture", "text", "batches"],
)
def test_checkpoint_of_something_else_is_refused_and_both_are_named(
    tmp_path: Path, identity: RunIdentity, said: str
) -> None:
    net, optimizer = make()
    checkpoint = save(tmp_path, net, optimizer, 1)
    with pytest.raises(CheckpointError, match=said):
        load(checkpoint, net, optimizer, identity)


@pytest.mark.parametrize("name", ["about.json", "weights.safetensors", "state.pt"])
def test_damaged_checkpoint_is_refused(tmp_path: Path, name: str) -> None:
    net, optimizer = make()
    checkpoint = save(tmp_path, net, optimizer, 1)
    (checkpoint / name).write_bytes(b"not what it was")
    with pytest.raises(CheckpointError, match="step-00000001 must be a whole checkpoint"):
        load(checkpoint, net, optimizer)


def test_weights_of_other_names_are_refused(tmp_path: Path) -> None:
    net, optimizer = make()
    checkpoint = save(tmp_path, net, optimizer, 1)
    with pytest.raises(CheckpointError, match="the weights that are trained; found: 6 names"):
        load(checkpoint, nn.Sequential(nn.Linear(8, 8)), optimizer)


def test_saving_twice_replaces_the_checkpoint(tmp_path: Path) -> None:
    net, optimizer = make()
    first = save(tmp_path, net, optimizer, 1)
    shutil.copy(first / "about.json", tmp_path / "about.json")
    take_steps(net, optimizer, 1)
    assert save(tmp_path, net, optimizer, 1) == first
    assert json.loads((first / "about.json").read_text())["position"]["step"] == 1
    assert [path.name for path in tmp_path.glob("*step*")] == [first.name]
