"""Progress of long work: counts go in, a bar with speed and time left comes out on stderr."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Progress(Protocol):
    """What a long-running function reports to; the caller decides what is shown."""

    def advance(self, amount: int) -> None:
        """Report work done.

        :param amount: Number of units since the last call.
        """

    def say(self, message: str) -> None:
        """Report a fact worth a line.

        :param message: One line of text.
        """


class SilentProgress:
    """Shows nothing; what tests and library callers pass."""

    def advance(self, amount: int) -> None:
        """Ignore work done.

        :param amount: Number of units since the last call.
        """

    def say(self, message: str) -> None:
        """Ignore a message.

        :param message: One line of text.
        """


@contextmanager
def show_progress(label: str, *, total: int | None, unit: str) -> Iterator[Progress]:
    """Show a bar on stderr while the block runs (plain lines where stderr is no terminal).

    :param label: What is being done.
    :param total: Number of units in all; None if unknown.
    :param unit: Name of a unit, in the plural.
    :yields: The progress to report to.
    """
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    console = Console(stderr=True)
    rich_progress = RichProgress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn(
            "{task.completed:.0f}/{task.total:.0f} {task.fields[unit]}"
            if total
            else "{task.completed:.0f} {task.fields[unit]}"
        ),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        console=console,
    )

    class _Shown:
        def advance(self, amount: int) -> None:
            rich_progress.advance(task, amount)
            speed = rich_progress.tasks[0].speed
            rich_progress.update(task, rate=f"{speed:.0f} {unit}/s" if speed else "")

        def say(self, message: str) -> None:
            rich_progress.console.print(message, markup=False, highlight=False, soft_wrap=True)

    with rich_progress:
        task = rich_progress.add_task(label, total=total, unit=unit, rate="")
        yield _Shown()
