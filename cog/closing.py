"""The one form of what is closed at the end of a ``with`` block."""

from typing import Self


class Closing:
    """A context manager of its own, closed at the end of the block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of what is held."""
        raise NotImplementedError
