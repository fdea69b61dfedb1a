"""``cog cite``: a file of generations goes in, the list of their sources comes out."""

import sys
from pathlib import Path

import click

from cog.cards import Card
from cog.cli.main import get_project
from cog.cli.output import tell
from cog.errors import GenerationError, RegistryError
from cog.paths import ProjectPaths
from cog.registry import load_card


@click.command("cite")
@click.argument("file", metavar="FILE.jsonl|-")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["markdown", "html", "bibtex"]),
    default="markdown",
    show_default=True,
    help="What to write.",
)
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file instead."
)
@click.pass_context
def command(ctx: click.Context, file: str, kind: str, out: Path | None) -> None:
    """List the sources of generations that `cog generate --json` wrote, with what licences ask."""
    from cog.decoding.source_list import FORMATS
    from cog.decoding.sources import collect_sources

    cards = _Cards(get_project(ctx))
    name = "standard input" if file == "-" else file
    sources = collect_sources(_read_text(file).split("\n"), card_of=cards.get, where=name)
    text = FORMATS[kind](sources)
    for corpus_id in cards.missing:
        tell(f"{corpus_id} has no card: whom to name is not known")
    if out is None:
        click.echo(text, nl=False)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise GenerationError(
            "--out must name a file that can be written", found=f"{out}: {error.strerror}"
        ) from None


class _Cards:
    # the cards of the corpora that are cited, each read once
    def __init__(self, paths: ProjectPaths) -> None:
        self._paths = paths
        self._cards: dict[str, Card | None] = {}
        self.missing: list[str] = []

    def get(self, corpus_id: str) -> Card | None:
        if corpus_id not in self._cards:
            try:
                self._cards[corpus_id] = load_card(self._paths, corpus_id)
            except RegistryError:
                self._cards[corpus_id] = None
                self.missing.append(corpus_id)
        return self._cards[corpus_id]


def _read_text(file: str) -> str:
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return content.decode("utf-8-sig")
    except OSError as error:
        raise GenerationError(
            "cog cite needs a file of generations",
            found=f"{file}: {error.strerror}",
            run="cog generate … --json writes them",
        ) from None
    except UnicodeDecodeError as error:
        raise GenerationError(
            f"{file} must be UTF-8", found=f"another byte at offset {error.start}"
        ) from None
