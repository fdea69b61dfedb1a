"""Generations for people.

A cited text goes in, coloured and numbered copies with a source list come out.
"""

import json
import sys
from collections.abc import Iterable

import click
from rich.console import Console
from rich.text import Text

from cog.records import CORPUS, Generation, Segment

COLOURS = (
    "cyan",
    "green",
    "magenta",
    "yellow",
    "blue",
    "red",
    "bright_cyan",
    "bright_green",
    "bright_magenta",
)


SourceKey = tuple[str, str]  # corpus id, document id


class Sources:
    """Numbers sources in the order they are first copied from."""

    def __init__(self) -> None:
        self.numbers: dict[SourceKey, int] = {}
        self.segments: dict[SourceKey, Segment] = {}

    def number(self, segment: Segment) -> int:
        """The number of a segment's source.

        :param segment: A corpus segment.
        :returns: Counting from 1.
        """
        key = (segment.corpus or "", segment.document_id or "")
        self.segments.setdefault(key, segment)
        return self.numbers.setdefault(key, len(self.numbers) + 1)


def render_segment(segment: Segment, sources: Sources) -> Text:
    """Colour one segment.

    :param segment: The segment.
    :param sources: Numbers of the sources so far.
    :returns: Text; a copy is coloured by its source and followed by its number.
    """
    if segment.origin != CORPUS:
        return Text(segment.text)
    number = sources.number(segment)
    colour = COLOURS[(number - 1) % len(COLOURS)]
    return Text.assemble((segment.text, colour), (f"[{number}]", f"dim {colour}"))


def render_sources(sources: Sources) -> Text:
    """List the sources.

    :param sources: The numbered sources.
    :returns: One line per source: number, title, document id, licence and address.
    """
    lines = []
    is_union = len({corpus_id for corpus_id, _ in sources.numbers}) > 1
    for key, number in sources.numbers.items():
        segment, (corpus_id, document_id) = sources.segments[key], key
        name = segment.title or document_id
        known = (
            corpus_id if is_union else "",
            document_id if document_id != name else "",
            segment.licence,
            segment.url,
        )
        details = " · ".join(part for part in known if part)
        colour = COLOURS[(number - 1) % len(COLOURS)]
        lines.append(
            Text.assemble(
                (f"[{number}] ", colour),
                (name, ""),
                (f"  {details}", "dim"),
            )
        )
    return Text("\n").join(lines)


def render_generation(generation: Generation) -> Iterable[Text]:
    """Lay out one generation.

    :param generation: The generation.
    :yields: The text, the sources, and a line of counts.
    """
    sources = Sources()
    body = Text.assemble((generation.prefix, "bold"))
    for segment in generation.segments:
        body.append_text(render_segment(segment, sources))
    yield body
    if sources.numbers:
        yield Text("")
        yield render_sources(sources)
    yield Text("")
    yield Text(describe(generation), style="dim")


def describe(generation: Generation) -> str:
    """Say in one line what a generation is made of.

    :param generation: The generation.
    :returns: Counts, corpus, index and speed.
    """
    copied = sum(1 for segment in generation.segments if segment.origin == CORPUS)
    seconds = sum(generation.seconds.values())
    short = "+".join(part[:12] for part in generation.index.split("+"))
    return (
        f"{generation.num_tokens} tokens in {generation.num_steps} steps, {copied} copies "
        f"· corpus {generation.corpus} · index {short} "
        f"· seed {generation.decoding.seed} · {generation.num_tokens / seconds:.0f} tokens/s"
    )


def write_generation(generation: Generation) -> None:
    """Print one generation.

    :param generation: The generation.
    """
    console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
    for line in render_generation(generation):
        console.print(line)
    console.print()


class SegmentWriter:
    """Prints segments as they come.

    :param prefix: The text that is continued.
    :param is_json: Print each segment as a JSON line instead of coloured text.
    """

    def __init__(self, prefix: str, *, is_json: bool) -> None:
        self._is_json = is_json
        self._sources = Sources()
        self._console = Console(highlight=False, soft_wrap=True)
        if not is_json:
            self._console.print(Text(prefix, style="bold"), end="")

    def write(self, _number: int, segment: Segment) -> None:
        """Print one segment.

        :param _number: Number of the text in its batch; always 0 here.
        :param segment: The segment.
        """
        if self._is_json:
            click.echo(json.dumps(segment.to_json(), ensure_ascii=False))
        else:
            self._console.print(render_segment(segment, self._sources), end="")
        sys.stdout.flush()

    def finish(self, generation: Generation) -> None:
        """Print what comes after the last segment: the whole as JSON, or the source list.

        :param generation: The finished generation.
        """
        if self._is_json:
            click.echo(json.dumps(generation.to_json(), ensure_ascii=False))
            return
        self._console.print("\n")
        if self._sources.numbers:
            self._console.print(render_sources(self._sources))
        self._console.print(Text("\n" + describe(generation), style="dim"))
