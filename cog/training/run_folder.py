"""The folder, the devices and the signals of a run: checked, held, opened and watched here."""

import secrets
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import FrameType

import torch
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs, broadcast_object_list, gather_object

from cog.errors import CheckpointError, TrainingError
from cog.locks import try_locks
from cog.model.load import resolve_device
from cog.progress import Progress
from cog.training.checkpoint import find_checkpoints

RUN_FOLDER = "run"  # in the folder of what is trained
CHECKPOINTS = f"{RUN_FOLDER}/checkpoints"
METRICS = f"{RUN_FOLDER}/metrics.jsonl"
# The first process tokenises and encodes for hours while the others wait, where torch gives up
# after ten minutes; who dies while the others wait is noticed by what started them all.
WAITING = timedelta(days=7)
SEEN_SECONDS = 10.0  # in which a file that one machine wrote must show on another


def find_start(
    out: Path, *, is_resumed: bool, config: str, run: str, progress: Progress
) -> Path | None:
    """Find the checkpoint that a run goes on from, and refuse a folder that is taken.

    None for a new run. ``config`` is the name of the file that a finished folder holds, ``run``
    what to do where there is one.
    """
    checkpoints = find_checkpoints(out / CHECKPOINTS)
    if checkpoints and is_resumed:
        return checkpoints[-1]
    if checkpoints:
        raise CheckpointError(
            f"{out} must be free for a new run",
            found=f"{checkpoints[-1].name} of a run in it",
            run="go on with it (--resume), remove it, or name another --out",
        )
    # what a run wrote that broke off before its first checkpoint may be written again; what was
    # finished may not, and has no run/ if that was removed
    is_broken_off = is_resumed and (out / RUN_FOLDER).is_dir()
    if (out / config).exists() and not is_broken_off:
        raise CheckpointError(
            f"{out} must be free for a new model",
            found="a model in it" + (", and no run to resume" if is_resumed else ""),
            run=run,
        )
    if is_resumed:
        progress.say("nothing to resume: training begins at the start")
    return None


@contextmanager
def hold_run_folder(out: Path, *, is_main: bool) -> Iterator[None]:
    """Keep other processes from training into a folder."""
    run_folder = out / RUN_FOLDER
    try:
        run_folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(
            f"{out} must be a folder for the model",
            found=error.strerror or str(error),
            run="name another --out",
        ) from error
    if not is_main:
        yield
        return
    with try_locks(run_folder / ".lock") as is_free:
        if not is_free:
            raise TrainingError(
                f"{out} must be free",
                found="another process that trains into it",
                run="wait for it, or name another --out",
            )
        yield


def make_accelerator(device: str) -> Accelerator:
    """Open the device or devices of a run; a GPU computes in bf16."""
    is_cpu = resolve_device(device).type == "cpu"
    if not is_cpu:
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True
    return Accelerator(
        cpu=is_cpu,
        mixed_precision="no" if is_cpu else "bf16",
        kwargs_handlers=[InitProcessGroupKwargs(timeout=WAITING)],
    )


def check_shared(out: Path, accelerator: Accelerator) -> None:
    """Refuse processes that do not see one folder: what the first writes there, all read.

    Every process raises the same ``CheckpointError``, so that none waits for another.
    """
    if accelerator.num_processes == 1:
        return
    names = [secrets.token_hex(8)]
    broadcast_object_list(names)  # the first process's
    mark = out.parent / f".{out.name}.{names[0]}"
    is_written = True
    if accelerator.is_main_process:
        try:
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()
        except OSError:  # told where the folder is made, with its reason
            is_written = False
    accelerator.wait_for_everyone()
    end = time.monotonic() + SEEN_SECONDS
    while not mark.exists() and time.monotonic() < end:
        time.sleep(0.1)  # a file of another machine may show late
    seen = gather_object([(socket.gethostname(), mark.exists(), is_written)])
    if accelerator.is_main_process:
        mark.unlink(missing_ok=True)
    blind = sorted({host for host, is_seen, _ in seen if not is_seen})
    if blind and all(could for _, _, could in seen):
        raise CheckpointError(
            "--out must be one folder for all processes of a run",
            found=f"{out} is another one on {', '.join(blind)}",
            run="name a folder of a file system that the machines share",
        )


SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(slots=True)
class StopRequest:
    """Which signal asked the run to stop after the step it is in; empty for none."""

    name: str = ""


@contextmanager
def watch_signals() -> Iterator[StopRequest]:
    """Turn the first SIGINT or SIGTERM into a request; a second one ends the process at once.

    Outside the main thread none is seen.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def handle(number: int, _frame: FrameType | None) -> None:
        request.name = signal.Signals(number).name
        for each, handler in before.items():
            signal.signal(each, handler)

    for number in SIGNALS:
        signal.signal(number, handle)
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
