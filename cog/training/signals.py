"""Being asked to stop: SIGINT or SIGTERM comes in, a flag is raised, the run ends cleanly."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

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
