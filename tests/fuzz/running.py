"""The command line as a user meets it: words go in, what came out of it is checked."""

import io
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import click

from cog.cli.main import cli
from cog.errors import CogError


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command did.

    :param stdout: What it wrote.
    :param error: The one line of a stated failure; empty if it ended well.
    """

    stdout: str
    error: str


def run_cog(root: Path, words: Sequence[str]) -> Outcome:
    """Run a command; anything but an end or a stated failure of one printable line is raised.

    :param root: The project.
    :param words: The command.
    :returns: What it did.
    """
    stdout = io.StringIO()
    error = ""
    with redirect_stdout(stdout), redirect_stderr(io.StringIO()):
        try:
            cli.main(["--project", str(root), *words], standalone_mode=False)
        except (CogError, click.ClickException) as stated:
            error = str(stated)
            assert error.strip(), "a failure that says nothing"
    for text in (stdout.getvalue(), error):
        text.encode("utf-8")
    assert "\n" not in error
    assert len(error) < 4000
    assert "Traceback" not in error
    return Outcome(stdout.getvalue(), error)
