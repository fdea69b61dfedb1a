import pytest

from cog.progress import SilentProgress, _Count, show_progress


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


def test_lines_tell_speed_and_time_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cog.progress.LINE_SECONDS", 0.0)
    now = 0.0
    monkeypatch.setattr("cog.progress.time.monotonic", lambda: now)
    with show_progress("evaluate wiki-mini", total=None, unit="texts") as progress:
        progress.expect(40)
        progress.advance(0)
        now = 60.0  # loading, which says nothing of the speed
        progress.advance(10)
        now = 62.0
        progress.advance(10)
        progress.expect(60)
        now = 80.0
        progress.advance(10)
    assert capsys.readouterr().err.splitlines() == [
        "evaluate wiki-mini: 0/40 texts",
        "evaluate wiki-mini: 10/40 texts",
        "evaluate wiki-mini: 20/40 texts, 5 texts/s",
        *2 * ["evaluate wiki-mini: 30/100 texts, 1 texts/s, 0:01:10 left"],
    ]


def test_no_more_is_done_than_there_is() -> None:
    count = _Count(622)
    count.advance(624)
    assert count.describe("words") == "622/622 words"


def test_speed_is_that_of_the_last_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("cog.progress.time.monotonic", lambda: now)
    count = _Count(400)
    count.advance(100)  # of a run before
    for _ in range(20):
        now += 10.0
        count.advance(10)
    assert count.describe_rate("steps") == "1 steps/s"
    assert count.describe_left() == "0:01:40 left"
