import time

import pytest

from cog.progress import SilentProgress, show_progress


@pytest.mark.parametrize("total", [10, None])
def test_show_progress_writes_to_stderr_only(
    capsys: pytest.CaptureFixture[str], total: int | None
) -> None:
    with show_progress("index wiki-mini", total=total, unit="words") as progress:
        progress.advance(4)
        progress.say("a fact [with brackets] worth a line")
        progress.advance(6)
    said = capsys.readouterr()
    assert said.out == ""
    assert "a fact [with brackets] worth a line" in said.err
    assert "index wiki-mini" in said.err
    assert "10/10 words" in said.err if total else "10 words" in said.err


def test_silent_progress_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    progress = SilentProgress()
    progress.advance(1)
    progress.say("x")
    assert capsys.readouterr() == ("", "")


def test_progress_costs_little_however_often_it_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    began = time.process_time()
    with show_progress("prepare lines", total=None, unit="documents") as progress:
        for _ in range(50_000):
            progress.advance(1)
    assert time.process_time() - began < 2.0
    assert "50000 documents" in capsys.readouterr().err
