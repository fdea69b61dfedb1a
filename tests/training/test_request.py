"""Training for the pipeline: what goes on, and what is replaced."""

import shutil
from pathlib import Path

import pytest

from cog.errors import DamagedCheckpointError
from cog.training.checkpoint import find_checkpoints
from cog.training.job import TrainReport, train
from cog.training.request import go_on_or_begin_anew
from tests.told import Told
from tests.training.making import make_job, make_recipe, read_losses


def repeat(out: Path, *, steps: int, head_width: int = 32) -> tuple[TrainReport, list[str]]:
    """What the stage does each time, and what it says."""
    recipe = make_recipe(checkpoint_steps=2, head_width=head_width)
    job = make_job(out, recipe=recipe, steps=steps, is_resumed=True)
    told = Told()
    report = go_on_or_begin_anew(
        out,
        config="config.yaml",
        max_steps=steps,
        run=lambda: train(job, progress=told, log=None),
    )
    return report, told.lines


def test_a_run_that_broke_off_goes_on_and_what_was_finished_is_replaced(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    repeat(out, steps=2)
    report, lines = repeat(out, steps=3)
    assert "resumed at step 2" in lines
    assert (report.steps, list(read_losses(out))) == (3, [1, 2, 3])
    for is_removed in (False, True):
        if is_removed:
            shutil.rmtree(out / "run")
        report, lines = repeat(out, steps=3)
        assert "nothing to resume: training begins at the start" in lines
        assert (report.steps, list(read_losses(out))) == (3, [1, 2, 3])
    _, lines = repeat(out, steps=5, head_width=24)
    assert "nothing to resume: training begins at the start" in lines
    assert find_checkpoints(out / "run" / "checkpoints")[-1].name == "step-00000005"


@pytest.mark.parametrize("name", ["about.json", "weights.safetensors", "state.pt"])
def test_a_damaged_checkpoint_costs_the_steps_after_the_one_before_and_no_more(
    tmp_path: Path, name: str
) -> None:
    out = tmp_path / "out"
    repeat(out, steps=4)
    checkpoints = out / "run" / "checkpoints"
    (checkpoints / "step-00000004" / name).write_bytes(b"not what it was")
    _, lines = repeat(out, steps=5)
    assert "step-00000004 is damaged: going on from the one before" in lines
    assert "resumed at step 2" in lines
    assert list(read_losses(out)) == [1, 2, 3, 4, 5]

    for checkpoint in find_checkpoints(checkpoints):
        (checkpoint / name).write_bytes(b"not what it was")
    left = sorted(out.rglob("*"))
    with pytest.raises(DamagedCheckpointError, match="step-00000005 must be a whole checkpoint"):
        repeat(out, steps=6)
    assert sorted(out.rglob("*")) == left


def test_a_run_that_was_killed_after_its_last_step_is_not_begun_anew(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    repeat(out, steps=2)
    (out / "config.yaml").unlink()
    report, lines = repeat(out, steps=2)
    assert "resumed at step 2" in lines
    assert (report.steps, (out / "config.yaml").is_file()) == (2, True)
