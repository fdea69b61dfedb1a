"""Being asked to stop: SIGINT or SIGTERM comes in, a flag is raised, the run ends cleanly."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Whether the run was asked to stop."""

    def __init__(self) -> None:
        self.name = ""

    def __bool__(self) -> bool:
        return self.name != ""

    def ask(self, name: str) -> None:
        """Ask the run to stop after the step it is in."""
        self.name = name


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
        request.ask(signal.Signals(number).name)
        for each, handler in before.items():
            signal.signal(each, handler)

    for number in SIGNALS:
        signal.signal(number, handle)
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
