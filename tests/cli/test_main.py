import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from cog.cli.main import MOVED, SECTIONS, cli
from cog.version import __version__
from tests.calling import refusal
from tests.tiny_project import make_project


def run_cog(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [Path(sys.executable).with_name("cog"), *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env=dict(os.environ),
    )


def test_help_names_every_command() -> None:
    said = CliRunner().invoke(cli, ["--help"]).output
    for heading, commands in SECTIONS.items():
        assert f"{heading}:" in said
        for name, what in commands.items():
            assert f"  {name} " in said
            assert what.split()[0] in said
    assert not [name for name in MOVED if f"  {name} " in said]


@pytest.mark.parametrize(
    ("old", "new"),
    [(name, words.split()) for name, words in MOVED.items()]
    + [("study paper", ["paper", "study", "table"])],
)
def test_an_old_name_is_the_new_command_and_says_so(old: str, new: list[str]) -> None:
    before = CliRunner().invoke(cli, [*old.split(), "--help"], prog_name="cog")
    now = CliRunner().invoke(cli, [*new, "--help"], prog_name="cog")
    assert before.exit_code == now.exit_code == 0
    assert before.stdout == now.stdout
    assert now.stderr == ""
    assert f"is now cog {' '.join(new)}; " in before.stderr


def test_version_is_the_package_s() -> None:
    assert CliRunner().invoke(cli, ["--version"]).output == f"cog, version {__version__}\n"


def test_stated_failure_is_one_line_and_exit_1(tmp_path: Path) -> None:
    done = run_cog("status", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("cog: a cog project needs params.yaml and registry/")
    assert done.stderr.count("\n") == 1


def test_project_option_names_the_folder(tmp_path: Path) -> None:
    done = run_cog("--project", str(tmp_path), "status")
    assert done.returncode == 1
    assert str(tmp_path) in done.stderr


@pytest.mark.parametrize(
    "words", [["no-such-command"], ["--no-such-option"], ["switch", "--no-such-option"]]
)
def test_wrong_usage_is_exit_2(words: list[str]) -> None:
    done = run_cog(*words)
    assert done.returncode == 2
    assert "Usage: cog" in done.stderr


def test_no_words_show_the_help() -> None:
    done = run_cog()
    assert "init     Make a project" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--temperature", "nan", "nan is not a finite number"),
        ("--temperature", "101", "101.0 is not in the range 0.01<=x<=100"),
        ("--phrase-bias", "inf", "inf is not in the range -1000000<=x<=1000000"),
        ("--phrase-bias", "nan", "nan is not a finite number"),
        ("--verify-threshold", "nan", "nan is not a finite number"),
        ("--min-token-probability", "nan", "nan is not a finite number"),
        ("--top-p", "0", "0.0 is not in the range 0<x<=1"),
        ("--top-p", "nan", "nan is not a finite number"),
        ("--decoding", "beam", "'beam' is not one of 'greedy', 'nucleus'"),
        ("--top-k-documents", "-1", "-1 is not in the range 0<=x<=1000000000"),
    ],
)
def test_an_option_takes_what_its_setting_takes(option: str, value: str, message: str) -> None:
    done = CliRunner().invoke(cli, ["generate", "--prefix", "The old", option, value])
    assert done.exit_code == 2
    assert message in done.stderr


def test_what_a_library_prints_is_no_result() -> None:
    code = """if True:
        import ctypes, sys, click
        from cog.cli import main
        def show(): ctypes.CDLL(None).puts(b"talk"); click.echo("caf\\u00e9")
        main.cli = click.Command("cog", callback=show)
        sys.argv = ["cog"]
        main.main()"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("caf\u00e9\n", "talk\n")


def test_a_path_that_lancedb_would_cut_is_refused(tmp_path: Path) -> None:
    paths = make_project(tmp_path / "what?")
    said = str(refusal(paths, "corpus", "list"))
    assert said.startswith("the path of a project must have no '?'")
    assert said.endswith("next: move or rename that folder")
