"""Two processes that train one model together, over gloo, as `torchrun` starts them."""

import json
import multiprocessing
import os
import shutil
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from cog.errors import CheckpointError
from cog.progress import SilentProgress
from cog.training import job as job_module
from cog.training.job import TrainReport, train
from cog.training.loop import TrainingLoop
from tests.training.making import make_job, make_recipe, read_losses

NUM_PROCESSES = 2


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """What each of two processes saw, and the folder they trained into."""
    folder = tmp_path_factory.mktemp("two")
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=run_process, args=(rank, port, folder))
        for rank in range(NUM_PROCESSES)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    paths = [folder / f"{rank}.json" for rank in range(NUM_PROCESSES)]
    return folder, [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def run_process(rank: int, port: int, folder: Path) -> None:
    """One of the processes; what it saw goes to ``<rank>.json``."""
    environment = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": NUM_PROCESSES}
    environment |= {"MASTER_ADDR": "localhost", "MASTER_PORT": port, "COG_CACHE": folder / "cache"}
    os.environ.update({name: str(value) for name, value in environment.items()})
    torch.set_num_threads(1)
    recipe = make_recipe(checkpoint_steps=2)
    recipe = replace(recipe, model=replace(recipe.model, dropout=0.1))  # random states count too
    seen: dict[str, Any] = {}

    def run(name: str, **given: Any) -> TrainReport:  # noqa: ANN401
        loops: list[TrainingLoop] = []

        class Kept(TrainingLoop):
            def __init__(self, *words: Any, **named: Any) -> None:  # noqa: ANN401
                super().__init__(*words, **named)
                loops.append(self)

        job_module.TrainingLoop = Kept  # type: ignore[misc]
        report = train(
            make_job(folder / name, recipe=recipe, **given), progress=SilentProgress(), log=None
        )
        weights = loops[0].model.parameters()
        seen[name] = {
            "steps": report.steps,
            "tokens": report.num_tokens,
            "weights": [weight.double().sum().item() for weight in weights if weight.requires_grad],
            "rates": [group["lr"] for group in loops[0]._optimizer.param_groups],
        }
        return report

    apart = make_job(folder / f"machine-{rank}" / "out", recipe=recipe, steps=4)
    with pytest.raises(CheckpointError) as raised:  # as on machines that share no folder
        train(apart, progress=SilentProgress(), log=None)
    seen["apart"] = str(raised.value)
    run("whole", steps=4)
    if rank == 0:
        shutil.copytree(folder / "whole", folder / "again")
        shutil.rmtree(folder / "again" / "run" / "checkpoints" / "step-00000004")
    torch.distributed.barrier()
    run("again", steps=4, is_resumed=True)
    tick = iter(range(10**6))  # the second process's clock goes four times as fast
    import cog.training.reporting as reporting

    reporting.time.monotonic = lambda: next(tick) * (0.01 if rank == 0 else 0.04)  # type: ignore[assignment]
    run("seconds", seconds=0.5)
    (folder / f"{rank}.json").write_text(json.dumps(seen), encoding="utf-8")
    torch.distributed.destroy_process_group()


Results = tuple[Path, list[dict[str, Any]]]


@pytest.mark.parametrize("name", ["whole", "again", "seconds"])
def test_copies_of_the_model_stay_equal(results: Results, name: str) -> None:
    first, second = (seen[name] for seen in results[1])
    assert first == second
    assert first["steps"] > 2
    assert first["tokens"] > 0


def test_run_that_goes_on_is_the_one_that_never_stopped(results: Results) -> None:
    folder, seen = results
    assert read_losses(folder / "again") == read_losses(folder / "whole")
    for each in seen:
        assert each["again"] == each["whole"]


def test_processes_that_do_not_see_one_folder_all_say_so(results: Results) -> None:
    folder, seen = results
    for rank, each in enumerate(seen):
        assert each["apart"].startswith("--out must be one folder for all processes of a run")
        assert f"machine-{rank}/out is another one on {socket.gethostname()}" in each["apart"]
    assert sorted(path.name for path in folder.glob("machine-*/*")) == []


def test_run_of_two_processes_is_not_gone_on_with_by_one(
    results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = results
    monkeypatch.setenv("COG_CACHE", str(folder / "cache"))
    recipe = make_recipe(checkpoint_steps=2)
    job = make_job(folder / "whole", recipe=recipe, steps=6, is_resumed=True)
    with pytest.raises(CheckpointError, match="with num_processes 1; found: .* num_processes 2"):
        train(job, progress=SilentProgress(), log=None)
    assert (folder / "whole" / "run" / "checkpoints" / "step-00000004").is_dir()
