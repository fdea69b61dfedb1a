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
from torch import nn

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
    """What a checkpoint belongs to."""

    architecture: dict[str, Any]
    examples: str
    batches: dict[str, Any]  # what decides the order and content of batches, by field


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
        weights = {name: weight.detach().contiguous() for name, weight in _trained(model).items()}
        save_file(weights, unfinished / WEIGHTS_FILE)
        state = {"optimizer": optimizer.state_dict(), "random": list(random_states)}
        torch.save(state, unfinished / STATE_FILE)
        about = {"position": asdict(position), "identity": asdict(identity)}
        (unfinished / ABOUT_FILE).write_text(json.dumps(about, indent=1), encoding="utf-8")
        share(unfinished)
    for old in find_checkpoints(folder)[:-NUM_KEPT]:
        discard(old)
    return checkpoint


def find_checkpoints(folder: Path) -> list[Path]:
    """Find the checkpoints of a run, the newest last; the folder may be absent."""
    return sorted(path for path in folder.glob("step-*") if (path / ABOUT_FILE).is_file())


def load_checkpoint(
    checkpoint: Path,
    *,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    identity: RunIdentity,
    process: int,
) -> RunPosition:
    """Put a run back to where it was; ``process`` says whose random states are.

    One that cannot be read is a ``DamagedCheckpointError``; one of another architecture, other text
    or other batches a ``CheckpointError``.
    """
    saved, position = _load_about(checkpoint)
    _check_identity(checkpoint, wanted=identity, saved=saved)
    try:
        weights = load_file(checkpoint / WEIGHTS_FILE)
        state = torch.load(checkpoint / STATE_FILE, map_location="cpu", weights_only=True)
    except Exception as error:  # torch and safetensors raise many kinds
        raise _damaged(checkpoint, error) from error
    trained = _trained(model)
    if set(trained) != set(weights):
        odd = sorted(set(trained) ^ set(weights))
        raise CheckpointError(
            f"{checkpoint.name} must hold the weights that are trained",
            found=f"{len(odd)} names differ, such as {odd[0]}",
            about=str(checkpoint),
        )
    with torch.no_grad():
        for name, weight in trained.items():
            weight.copy_(weights[name])
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


def _trained(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


def _check_identity(checkpoint: Path, *, wanted: RunIdentity, saved: RunIdentity) -> None:
    # of batches, what an older run does not know is no difference
    saved_batches = {name: saved.batches.get(name) for name in wanted.batches}
    text, saved_text = ({"examples": each.examples} for each in (wanted, saved))
    for kind, values, saved_values, run in (
        ("a model with", wanted.architecture, saved.architecture, "resume with its profile"),
        ("a run on this text,", text, saved_text, "give its --data"),
        ("a run with", wanted.batches, saved_batches, "resume with its settings"),
    ):
        names = [
            name
            for name in sorted({*values, *saved_values})
            if values.get(name) != saved_values.get(name)
        ]
        if names:
            raise CheckpointError(
                f"the checkpoint must be of {kind} {_list(values, names)}",
                found=f"{checkpoint.name} with {_list(saved_values, names)}",
                run=f"{run}, go on from its model (--from), or train into another --out",
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
