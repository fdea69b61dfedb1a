"""Training for the pipeline: what goes on, and what is replaced."""

import shutil
from pathlib import Path

import pytest

from cog.evaluation.training import go_on_or_begin_anew
from cog.training.checkpoint import find_checkpoints
from cog.training.job import TrainReport, train
from tests.training.making import make_job, make_recipe, read_losses
from tests.training.test_reporting import Said


def repeat(out: Path, *, steps: int, head_width: int = 32) -> tuple[TrainReport, list[str]]:
    """What the stage does each time, and what it says."""
    recipe = make_recipe(checkpoint_steps=2, head_width=head_width)
    job = make_job(out, recipe=recipe, steps=steps, is_resumed=True)
    said = Said()
    report = go_on_or_begin_anew(
        out,
        config="config.yaml",
        max_steps=steps,
        run=lambda: train(job, progress=said, log=None),
    )
    return report, said.lines


def test_a_run_that_broke_off_goes_on_and_what_was_finished_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COG_CACHE", str(tmp_path / "cache"))
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
