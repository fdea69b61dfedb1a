"""Progress of long work: counts go in, speed and time left come out on stderr."""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.console import Console

LINE_SECONDS = 30.0  # between two lines where stderr is no terminal
SAMPLE_SECONDS = 1.0
LEAST_SECONDS = 0.1  # that a rate is told of
SETTLE_SECONDS = 10.0  # before the time left is told
RATE_SECONDS = 120.0  # the speed is that of the last two minutes


class Progress(Protocol):
    """What a long-running function reports to; the caller decides what is shown."""

    def expect(self, amount: int) -> None:
        """Report work to come that was not known before."""

    def advance(self, amount: int) -> None:
        """Report units done since the last call."""

    def say(self, message: str) -> None:
        """Report a fact worth a line."""


class SilentProgress:
    """Shows nothing; what tests and library callers pass."""

    def expect(self, amount: int) -> None:
        """Ignore work to come."""

    def advance(self, amount: int) -> None:
        """Ignore work done."""

    def say(self, message: str) -> None:
        """Ignore a message."""


SILENT = SilentProgress()


@contextmanager
def show_progress(label: str, *, total: int | None, unit: str) -> Iterator[Progress]:
    """Show a bar on stderr while the block runs; a line now and then where it is no terminal.

    The total is None if it is not known or is told by ``expect``; the unit is in the plural.
    """
    from rich.console import Console

    console = Console(stderr=True)
    count = _Count(total)
    if not console.is_terminal:
        lines = _Lines(console, label, unit, count)
        try:
            yield lines
        finally:
            if count.num:
                lines.show()
        return
    with _show_bar(console, label, unit, count) as progress:
        yield progress


@dataclass(slots=True)
class _Count:
    # how much is done, and how fast: from the first report on, since loading what works takes time
    total: int | None
    num: int = 0
    samples: deque[tuple[float, int]] = field(default_factory=deque)

    def expect(self, amount: int) -> None:
        self.total = (self.total or 0) + amount

    def advance(self, amount: int) -> None:
        now = time.monotonic()
        self.num += amount
        if not self.num:  # none of what a build had before is to be had again: loading comes next
            return
        if len(self.samples) > 2 and now - self.samples[-2][0] < SAMPLE_SECONDS:
            self.samples.pop()
        self.samples.append((now, self.num))
        while len(self.samples) > 2 and now - self.samples[1][0] > RATE_SECONDS:
            self.samples.popleft()

    def describe(self, unit: str) -> str:
        if self.total is None:
            return f"{self.num} {unit}"
        # a word that two chunks share is done twice
        return f"{min(self.num, self.total)}/{self.total} {unit}"

    def describe_rate(self, unit: str) -> str:
        rate = self._rate()
        if not rate:
            return ""
        return f"{rate:.0f} {unit}/s" if rate >= 10.0 else f"{rate:.2g} {unit}/s"

    def describe_left(self) -> str:
        rate = self._rate()
        if self.total is None or not rate or self.num >= self.total:
            return ""
        if self.samples[-1][0] - self.samples[0][0] < SETTLE_SECONDS:
            return ""
        left = round((self.total - self.num) / rate)
        return f"{left // 3600}:{left // 60 % 60:02}:{left % 60:02} left"

    def _rate(self) -> float:
        if not self.samples:
            return 0.0
        (began, before), (ended, after) = self.samples[0], self.samples[-1]
        # what is told of all at once, at its end, has no rate
        return (after - before) / (ended - began) if ended - began > LEAST_SECONDS else 0.0


class _Lines:
    def __init__(self, console: "Console", label: str, unit: str, count: _Count) -> None:
        self._console, self._label, self._unit, self._count = console, label, unit, count
        self._shown = time.monotonic()

    def expect(self, amount: int) -> None:
        self._count.expect(amount)

    def advance(self, amount: int) -> None:
        self._count.advance(amount)
        if time.monotonic() - self._shown >= LINE_SECONDS:
            self.show()

    def say(self, message: str) -> None:
        _print(self._console, message)

    def show(self) -> None:
        self._shown = time.monotonic()
        count = self._count
        parts = (count.describe(self._unit), count.describe_rate(self._unit), count.describe_left())
        _print(self._console, f"{self._label}: {', '.join(part for part in parts if part)}")


@contextmanager
def _show_bar(console: "Console", label: str, unit: str, count: _Count) -> Iterator[Progress]:
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        *(TextColumn(f"{{task.fields[{name}]}}") for name in ("done", "rate", "left")),
    )

    class _Shown:
        def expect(self, amount: int) -> None:
            count.expect(amount)
            self._update()

        def advance(self, amount: int) -> None:
            count.advance(amount)
            self._update()

        def say(self, message: str) -> None:
            _print(rich_progress.console, message)

        def _update(self) -> None:
            rich_progress.update(
                task,
                completed=count.num,
                total=count.total,
                done=count.describe(unit),
                rate=count.describe_rate(unit),
                left=count.describe_left(),
            )

    with RichProgress(*columns, console=console) as rich_progress:
        task = rich_progress.add_task(
            label, total=count.total, done=count.describe(unit), rate="", left=""
        )
        yield _Shown()


def _print(console: "Console", message: str) -> None:
    console.print(message, markup=False, highlight=False, soft_wrap=True)
