"""Calling ``cog`` inside the test's process: words go in, what it prints or refuses comes out."""

import json
from typing import Any

from click.testing import CliRunner, Result

from cog.cli.main import cli
from cog.errors import CogError
from cog.paths import ProjectPaths


def call(paths: ProjectPaths, *words: str, stdin: str | None = None) -> Result:
    """Call a command on a project."""
    return CliRunner().invoke(cli, ["--project", str(paths.root), *words], input=stdin)


def call_json(paths: ProjectPaths, *words: str) -> Any:  # noqa: ANN401
    """Call a command with ``--json``; it may say by its exit code that something is wrong."""
    result = call(paths, *words, "--json")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return json.loads(result.stdout)


def refusal(paths: ProjectPaths, *words: str) -> CogError:
    """Call a command that must be refused in one line, before it prints anything."""
    result = call(paths, *words)
    assert isinstance(result.exception, CogError), (result.exception, result.output)
    assert result.stdout == ""
    assert "\n" not in str(result.exception)
    return result.exception
