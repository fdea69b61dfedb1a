"""Kills a piece of work at a touch of a file, at each of them, or at a moment.

The work runs in forks of the process that calls this; that process is one of its own, since what
has used torch's threads or opened a table of Lance does not survive a fork.
"""

import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

MAX_SECONDS = 300.0

WATCHED = {
    "open",
    "os.mkdir",
    "os.rename",
    "os.remove",
    "os.rmdir",
    "os.truncate",
    "os.link",
    "shutil.rmtree",
}
EVERYWHERE = {"fcntl.flock", "ctypes.dlsym"}  # which do not say on what


def watch_files(root: str, kill_at: int) -> list[str]:
    """Kill this process at its n-th touch of a file below a folder; at 0, never.

    Gives what is touched, as it happens; the last touch is not done yet.
    """
    touches: list[str] = []

    def count(event: str, arguments: tuple[object, ...]) -> None:
        is_below = event in WATCHED and any(str(each).startswith(root) for each in arguments[:2])
        if is_below or event in EVERYWHERE:
            touches.append(f"{event} {arguments[0]}")
            if len(touches) == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    return touches


def run_child(work: Callable[[], object], *, delay: float = MAX_SECONDS) -> int:
    """Run a piece of work in a fork, and kill it if it takes longer.

    Gives 0 if it ended well, 1 if it raised, or minus the signal that ended it.
    """
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    deadline = time.monotonic() + delay
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if not ended and time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            ended, status = os.waitpid(child, 0)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)


def kill_at_every_touch(
    root: str, work: Callable[[], object], check: Callable[[int], object]
) -> int:
    """Kill a piece of work at its first touch, then at its second, until it ends well.

    After each kill its number is checked, and 0 after the whole work; gives the number of kills.
    """
    number = 1
    while True:

        def watch(number: int = number) -> None:
            watch_files(root, number)
            work()

        status = run_child(watch)
        assert status in (0, -signal.SIGKILL), f"touch {number} ended with {status}"
        check(0 if status == 0 else number)
        if status == 0:
            return number - 1
        number += 1


def run_driver(*words: str) -> Any:  # noqa: ANN401
    """Run a module of the tests that kills, in a process of its own; the counts it prints."""
    forks = ("-W", "ignore:lance is not fork-safe:UserWarning")  # it is not open when forked
    threads = ("-W", "ignore:This process:DeprecationWarning")
    done = subprocess.run(
        [sys.executable, *forks, *threads, "-m", *words],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)
