"""Checkpoints: the state of a run goes in, a folder that a killed run goes on from comes out.

There is never a part of one.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from cog.atomic import discard, replacing, share
from cog.errors import CheckpointError, DamagedCheckpointError

ABOUT_FILE = "about.json"
WEIGHTS_FILE = "weights.safetensors"
STATE_FILE = "state.pt"
NUM_KEPT = 2


@dataclass(frozen=True, slots=True)
class RunPosition:
    """How far a run is."""

    step: int
    seconds: float
    num_tokens: int


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """What a checkpoint belongs to.

    :param batches: What decides the order and content of batches, by field.
    """

    architecture: dict[str, Any]
    examples: str
    batches: dict[str, Any]


def save_checkpoint(
    folder: Path,
    *,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    position: RunPosition,
    identity: RunIdentity,
    random_states: Sequence[Mapping[str, Any]],
) -> Path:
    """Save everything that a run needs to go on exactly.

    All but the newest two are removed. What the model does not train is not saved. Random states
    are as :func:`get_random_states` gives them, of each process in order.
    """
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint = folder / f"step-{position.step:08d}"
    with replacing(checkpoint) as unfinished:
        unfinished.mkdir()
        save_file(_trained(model), unfinished / WEIGHTS_FILE)
        state = {"optimizer": optimizer.state_dict(), "random": list(random_states)}
        torch.save(state, unfinished / STATE_FILE)
        about = {"position": asdict(position), "identity": asdict(identity)}
        (unfinished / ABOUT_FILE).write_text(json.dumps(about, indent=1), encoding="utf-8")
        share(unfinished)
    for old in find_checkpoints(folder)[:-NUM_KEPT]:
        discard(old)
    return checkpoint


def find_checkpoints(folder: Path) -> list[Path]:
    """Find the checkpoints of a run.

    The newest is the last; the folder may be absent.
    """
    return sorted(path for path in folder.glob("step-*") if (path / ABOUT_FILE).is_file())


def load_checkpoint(
    checkpoint: Path,
    *,
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None,
    identity: RunIdentity,
    process: int = 0,
) -> RunPosition:
    """Put a run back to where it was.

    Without an optimiser the weights alone are put back, and random states stay as they are, too;
    ``process`` says whose they are. One that cannot be read is a ``DamagedCheckpointError``; one of
    another architecture, other text or other batches a ``CheckpointError``.
    """
    saved, position = _load_about(checkpoint)
    _check_identity(checkpoint, wanted=identity, saved=saved)
    try:
        weights = load_file(checkpoint / WEIGHTS_FILE)
        state = torch.load(checkpoint / STATE_FILE, map_location="cpu", weights_only=True)
    except Exception as error:  # torch and safetensors raise many kinds
        raise _damaged(checkpoint, error) from error
    trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    if set(trained) != set(weights):
        odd = sorted(set(trained) ^ set(weights))
        raise CheckpointError(
            f"{checkpoint.name} must hold the weights that are trained",
            found=f"{len(odd)} names differ, such as {odd[0]}",
            about=str(checkpoint),
        )
    with torch.no_grad():
        for name, parameter in trained.items():
            parameter.copy_(weights[name])
    if optimizer is not None:
        optimizer.load_state_dict(state["optimizer"])
        random = state["random"]  # of one process alone before several were kept
        _set_random_states(random if isinstance(random, dict) else random[process])
    return position


def get_step(checkpoint: Path) -> int:
    """The step after which a checkpoint was made, also of one that is damaged."""
    return int(checkpoint.name.removeprefix("step-"))


def _load_about(checkpoint: Path) -> tuple[RunIdentity, RunPosition]:
    try:
        about = json.loads((checkpoint / ABOUT_FILE).read_text(encoding="utf-8"))
        identity = RunIdentity(**about["identity"])
        identity.batches.setdefault("num_processes", 1)  # what an older run does not say
        return identity, RunPosition(**about["position"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(checkpoint, error) from error


def _trained(model: nn.Module) -> dict[str, Tensor]:
    return {
        name: parameter.detach().contiguous()
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    }


def _check_identity(checkpoint: Path, *, wanted: RunIdentity, saved: RunIdentity) -> None:
    if saved.architecture != wanted.architecture:
        names = sorted(
            name
            for name in {*saved.architecture, *wanted.architecture}
            if saved.architecture.get(name) != wanted.architecture.get(name)
        )
        raise CheckpointError(
            f"the checkpoint must be of a model with {_list(wanted.architecture, names)}",
            found=f"{checkpoint.name} with {_list(saved.architecture, names)}",
            run="resume with the profile it was made with, or train into another --out",
            about=str(checkpoint),
        )
    if saved.examples != wanted.examples:
        raise CheckpointError(
            f"the checkpoint must be of a run on this text (examples {wanted.examples})",
            found=f"{checkpoint.name} of a run on examples {saved.examples}",
            run="give the --data it was made with, or go on from its model: --from MODEL",
            about=str(checkpoint),
        )
    names = [k for k in wanted.batches if saved.batches.get(k) != wanted.batches[k]]
    if names:
        raise CheckpointError(
            f"the checkpoint must be of a run with {_list(wanted.batches, names)}",
            found=f"{checkpoint.name} with {_list(saved.batches, names)}",
            run="resume with the settings it was made with, or train into another --out",
            about=str(checkpoint),
        )


def _list(values: dict[str, Any], names: list[str]) -> str:
    return ", ".join(f"{name} {values.get(name)}" for name in names[:4])


def get_random_states() -> dict[str, Any]:
    """What decides what is drawn next in this process, dropout above all."""
    states: dict[str, Any] = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state_all()
    return states


def _set_random_states(states: dict[str, Any]) -> None:
    torch.set_rng_state(states["cpu"])
    if torch.cuda.is_available() and len(states.get("cuda", [])) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(states["cuda"])


def _damaged(checkpoint: Path, error: Exception) -> DamagedCheckpointError:
    return DamagedCheckpointError(
        f"{checkpoint.name} must be a whole checkpoint",
        found=str(error).partition("\n")[0] or type(error).__name__,
        run=f"remove {checkpoint}",
        about=str(checkpoint),
    )
