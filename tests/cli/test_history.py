"""``cog history``: every switch and rollback has a line; lines are only ever added."""

import json
import subprocess
from pathlib import Path

import pytest

from cog.paths import ProjectPaths
from cog.records import Active
from cog.registry import load_active, load_previous, rollback_active, switch_active
from cog.switch_log import OUTSIDE, load_history
from tests.calling import call


def make_active(corpus_id: str) -> Active:
    return Active(corpus_id, "a" * 64, "b" * 64, "2026-01-01T00:00:00+00:00")


def switch(project: ProjectPaths, corpus_id: str) -> None:
    switch_active(project, make_active(corpus_id), command=f"cog switch --corpus {corpus_id}")


def names(project: ProjectPaths) -> list[tuple[str | None, str | None]]:
    entries, num_broken = load_history(project)
    assert num_broken == 0
    return [
        (
            each.before["corpus"] if each.before else None,
            each.after["corpus"] if each.after else None,
        )
        for each in entries
    ]


def test_every_change_has_a_line_and_old_lines_stay(project: ProjectPaths) -> None:
    written = b""
    switch(project, "village")
    for change in ("hamlet", "hamlet", None, "town"):
        written_before, written = written, project.history.read_bytes()
        assert written.startswith(written_before)
        if change is None:
            rollback_active(project, load_previous(project)[0], command="cog rollback")
        else:
            switch(project, change)
    assert project.history.read_bytes().startswith(written)
    assert names(project) == [
        (None, "village"),
        ("village", "hamlet"),
        ("hamlet", "village"),
        ("village", "town"),
    ]
    entries, _ = load_history(project)
    assert [each.command.split()[1] for each in entries] == [
        "switch",
        "switch",
        "rollback",
        "switch",
    ]
    assert all(each.time.endswith("+00:00") for each in entries)


def test_git_user_is_named(project: ProjectPaths) -> None:
    subprocess.run(["git", "init", "--quiet"], cwd=project.root, check=True)
    for key, value in (("user.name", "Ada Lövelace"), ("user.email", "ada@example.org")):
        subprocess.run(["git", "config", key, value], cwd=project.root, check=True)
    switch(project, "village")
    assert load_history(project)[0][0].who == "Ada Lövelace <ada@example.org>"


def test_without_git_the_user_of_the_machine_is_named(
    project: ProjectPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("LOGNAME", "ada")
    switch(project, "village")
    assert load_history(project)[0][0].who == "ada"


def test_change_without_a_line_is_found_and_noted(project: ProjectPaths) -> None:
    switch(project, "village")
    switch(project, "hamlet")
    lines = project.history.read_bytes().splitlines(keepends=True)
    project.history.write_bytes(lines[0])  # as after a kill between the switch and its line
    switch(project, "town")
    assert names(project) == [(None, "village"), ("village", "hamlet"), ("hamlet", "town")]
    assert load_history(project)[0][1].command == OUTSIDE


def test_switch_that_was_killed_before_its_line_gets_it_when_it_is_said_again(
    project: ProjectPaths,
) -> None:
    switch(project, "village")
    switch(project, "hamlet")
    content = project.history.read_bytes()
    project.history.write_bytes(content.splitlines(keepends=True)[0])
    for _ in range(2):
        switch(project, "hamlet")
        assert names(project) == [(None, "village"), ("village", "hamlet")]
    assert OUTSIDE not in project.history.read_text()


def test_switch_that_changes_nothing_leaves_the_history_as_it_is(project: ProjectPaths) -> None:
    switch(project, "village")
    content = project.history.read_bytes() + b'{"time": "2026'
    project.history.write_bytes(content)
    switch(project, "village")
    assert project.history.read_bytes() == content


def test_line_that_was_cut_is_passed_over_and_said(project: ProjectPaths) -> None:
    switch(project, "village")
    with project.history.open("ab") as file:
        file.write(b'{"time": "2026')
    switch(project, "hamlet")
    entries, num_broken = load_history(project)
    assert (len(entries), num_broken) == (2, 1)
    result = call(project, "history", "--json")
    assert len(json.loads(result.stdout)) == 2
    assert "1 lines of history.jsonl" in result.stderr


@pytest.mark.parametrize(
    "changed", [{"before": "village"}, {"after": ["village"]}, {"after": {"corpus": 1}}, {"who": 3}]
)
def test_line_of_another_form_is_passed_over_and_said(
    project: ProjectPaths, changed: dict[str, object]
) -> None:
    switch(project, "village")
    line = json.loads(project.history.read_text()) | changed
    with project.history.open("a") as file:
        file.write(json.dumps(line) + "\n")
    switch(project, "hamlet")
    entries, num_broken = load_history(project)
    assert ([each.command == OUTSIDE for each in entries], num_broken) == ([False, False], 1)
    result = call(project, "history")
    assert len(result.stdout.splitlines()) == 6  # three lines each
    assert "1 lines of history.jsonl" in result.stderr


def test_every_part_of_a_union_has_its_digest(project: ProjectPaths) -> None:
    active = Active("village+hamlet", f"{'a' * 64}+{'c' * 64}", "b" * 64, "2026-01-01T00:00:00Z")
    switch_active(project, active, command="one")
    result = call(project, "history")
    assert f"village+hamlet (index {'a' * 16}+{'c' * 16})" in result.stdout


def test_history_is_shown_newest_first(project: ProjectPaths) -> None:
    assert "nothing was ever switched on" in call(project, "history").stdout
    switch(project, "village")
    switch(project, "hamlet")
    lines = call(project, "history").stdout.splitlines()
    assert lines[1:3] == [
        f"  village (index {'a' * 16}) -> hamlet (index {'a' * 16})",
        "  cog switch --corpus hamlet",
    ]
    assert lines[4] == f"  nothing -> village (index {'a' * 16})"
    project.active.unlink()
    assert load_active(project) is None
    assert "not switched on by cog" in call(project, "history").stderr


def test_history_loads_nothing_heavy(project: ProjectPaths, repository: Path) -> None:
    import sys

    code = (
        "import sys\nfrom cog.cli.main import cli\n"
        f"cli.main(['--project', {str(project.root)!r}, 'history'], standalone_mode=False)\n"
        "print([n for n in ('torch', 'lancedb', 'pyarrow', 'numpy') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=repository, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_line_without_a_folder_of_the_model_is_no_change_of_its_own(
    project: ProjectPaths,
) -> None:
    switch_active(project, make_active("village"), command="one")
    line = json.loads(project.history.read_text())
    del line["after"]["model_folder"]  # as lines were written before
    project.history.write_text(json.dumps(line) + "\n")
    assert call(project, "history").stderr == ""
    switch_active(project, make_active("hamlet"), command="two")
    assert [entry.command for entry in load_history(project)[0]] == ["one", "two"]
