"""Progress that keeps what it is told; it may break off, as a lack of memory would."""

from cog.progress import SilentProgress


class Told(SilentProgress):
    """Lines and amounts that were told; the amount at which it breaks off, 0 for never."""

    def __init__(self, *, break_at: int = 0) -> None:
        self.lines: list[str] = []
        self.amount = 0
        self._break_at = break_at

    def advance(self, amount: int) -> None:
        self.amount += amount
        if self._break_at and self.amount >= self._break_at:
            raise MemoryError

    def say(self, message: str) -> None:
        self.lines.append(message)
