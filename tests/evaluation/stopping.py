"""Breaking a run off while it writes its texts, as Ctrl-C does."""

import pytest

from cog.decoding.generator import CopyGenerator
from cog.decoding.row import Row
from cog.records import Generation


def stop_at_text(monkeypatch: pytest.MonkeyPatch, number: int) -> list[str]:
    """Break off when a text is finished.

    :param monkeypatch: Undoes it after the test.
    :param number: Which, counted from 1 over everything that is written.
    :returns: The prefixes of the texts that are finished, which grows.
    """
    real, finished = CopyGenerator.finish, []

    def finish(self: CopyGenerator, row: Row, seconds: dict[str, float]) -> Generation:
        finished.append(row.request.prefix)
        if len(finished) == number:
            raise KeyboardInterrupt
        return real(self, row, seconds)

    monkeypatch.setattr(CopyGenerator, "finish", finish)
    return finished
