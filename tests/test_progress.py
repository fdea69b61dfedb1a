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
