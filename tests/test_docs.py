"""What README and docs say is to be run: the command is there, and takes what it is given."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from cog.cli.main import MOVED
from tests.test_next import find_command, list_options

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    path
    for pattern in ("README.md", "docs/*.md", "workflows/*/README.md", "registry/README.md")
    for path in sorted(ROOT.glob(pattern))
]
FENCE = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<!`)`(cog [a-z][^`]*)`")
ALIAS = re.compile(rf"^cog ({'|'.join(MOVED)})$")  # a page may say what an old name was


def iter_commands(text: str) -> Iterator[str]:
    """The commands of a page's examples, one by one, without what they are followed by."""
    for block in FENCE.findall(text):
        joined = block.replace("\\\n", " ")
        for line in joined.splitlines():
            line = line.removeprefix("$ ").partition(" #")[0]
            for part in re.split(r"&&|\||;| > ", line):
                if part.strip().startswith("cog ") and "…" not in part:
                    yield part.strip()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_examples_are_right_usage(path: Path) -> None:
    for line in iter_commands(path.read_text(encoding="utf-8")):
        command, words = find_command(shlex.split(line)[1:])
        if isinstance(command, click.Group) and not words:
            continue
        try:
            command.make_context(command.name, words)
        except click.UsageError as error:
            if "does not exist" not in error.message:  # a file of the reader's
                pytest.fail(f"{line}: {error.message}")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_that_are_named_are_there_with_their_options(path: Path) -> None:
    for line in INLINE.findall(FENCE.sub("", path.read_text(encoding="utf-8"))):
        if ALIAS.match(line):
            continue
        command, words = find_command(line.split()[1:])
        options = {word.partition("=")[0] for word in words if word.startswith("--")}
        if not isinstance(command, click.Group):
            assert options <= list_options(command) | {"--help"}, line
