"""Generations for people.

A cited text goes in; the text with its copies in colour comes out, with the documents that are most
worth looking up and the numbers of their copies.
"""

import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.style import Style
from rich.text import Text

from cog.cli.output import echo_json
from cog.decoding.ranking import SourceKey, get_key, rank_documents, weigh_copies
from cog.records import CORPUS, Generation, Segment

LEAST_TITLE = 24  # columns of a title for which the licence makes room


def render_source(segment: Segment, *, is_union: bool, width: int | None) -> Text:
    """Name the source of a copy: title, document id, licence and address, in one line.

    Where that is too long, the address goes, then the title is shortened, then the licence goes; a
    width of None leaves nothing out. Of a union the corpus is named, too.
    """
    document_id, url = segment.document_id or "", segment.url or ""
    title = " ".join((segment.title or "").split())
    if title == document_id:
        title = ""
    parts = [document_id, segment.corpus if is_union else None, segment.licence, url]
    details = _join(parts)
    if width is not None:
        title, details = _fit(title, parts, room=width)
    style = Style(link=url or None)
    if not title:
        title, _, details = details.partition(" · ")
    return Text.assemble((title, style), (f" · {details}" if details else "", "dim"))


def _fit(title: str, parts: list[str | None], *, room: int) -> tuple[str, str]:
    for num_parts, least in ((4, len(title) * 2), (3, LEAST_TITLE), (2, 0)):
        details = _join(parts[:num_parts])
        left = room - cell_len(f" · {details}" if title else details)
        if left >= min(cell_len(title), least):
            break
    if left >= min(cell_len(title), 4):
        return shorten(title, left), details
    return "", shorten(details, room)


def _join(parts: list[str | None]) -> str:
    return " · ".join(part for part in parts if part)


def shorten(text: str, width: int) -> str:
    """Leave out the middle of what is too long."""
    if cell_len(text) <= width:
        return text
    room = max(0, width - 1)
    end = text
    while cell_len(end) > room // 2:
        end = end[1:]
    return f"{set_cell_size(text, room - cell_len(end)).rstrip()}…{end.lstrip()}"


def join_numbers(numbers: list[int]) -> str:
    """Write numbers as short as can be: ``1,3-5`` for 1, 3, 4 and 5."""
    parts = []
    for _, pairs in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        run = [str(number) for _, number in pairs]
        parts.append(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(run))
    return ",".join(parts)


# of the 256 that terminals agree on: told apart, and read on black and on white
COLOURS = (37, 172, 134, 71, 33, 167, 142, 169, 74, 137, 108, 103)
USUAL_SOURCES = 10  # where nothing says how many fit
FEWEST_SOURCES = 3
QUOTE_COLUMNS = 40  # where there is no width


@dataclass(frozen=True, slots=True)
class Screen:
    """Where generations are shown."""

    width: int | None = None  # columns; None prints every line in full
    height: int | None = None  # lines; None where that is not known
    max_sources: int | None = None  # number of documents that are listed; None for as many as fit

    @property
    def label_columns(self) -> int | None:
        """The columns that a label may take at most: two fifths of the width; None without one."""
        return self.width and self.width * 2 // 5

    def count_sources(self, wanted: int, *, besides: Sequence[Text]) -> int:
        """How many sources are listed, at most as many as there are."""
        if self.max_sources is not None:
            return min(wanted, self.max_sources)
        if self.width is None or self.height is None:
            return min(wanted, USUAL_SOURCES)
        lines = [text.wrap(Console(), self.width) for text in besides]
        # two blank lines between the parts, one after the last, and one to type in
        room = self.height - 4 - sum(map(len, lines))
        # a line says how many more there are
        return wanted if wanted <= room else min(wanted, max(FEWEST_SOURCES, room - 1))


@dataclass(frozen=True, slots=True)
class Listed:
    """A document in the list of sources."""

    segment: Segment  # A copy of it
    label: str  # numbers of its copies, or a quotation
    colour: str  # its colour


def get_colour(rank: int) -> str:
    """The colour of a document, counted from 0, as a style of rich."""
    return f"color({COLOURS[rank % len(COLOURS)]})"


def render_generation(generation: Generation, screen: Screen) -> Iterator[Text]:
    """Lay out one generation: the text, a line for each source, and a line of counts."""
    segments = generation.segments
    ranked = rank_documents(segments)
    # numbers take room: what is left for sources is measured as if every copy had one
    numbers = {position: len(segments) for copies in ranked for position in copies}
    besides = [_render_text(generation, {}, numbers), _render_counts(generation, screen)]
    num_listed = screen.count_sources(len(ranked), besides=besides)
    in_order = sorted(position for copies in ranked[:num_listed] for position in copies)
    numbers = {position: number for number, position in enumerate(in_order, start=1)}
    styles = {
        position: get_colour(rank) for rank, copies in enumerate(ranked) for position in copies
    }
    yield _render_text(generation, styles, numbers)
    listed = []
    for copies in ranked[:num_listed]:
        label = f"[{join_numbers([numbers[position] for position in copies])}]"
        listed.append(Listed(segments[copies[0]], label, styles[copies[0]]))
    yield from _render_end(generation, listed, screen)


def _render_text(generation: Generation, styles: dict[int, str], numbers: dict[int, int]) -> Text:
    text = Text.assemble((generation.prefix, "bold"))
    for position, segment in enumerate(generation.segments):
        style = styles.get(position, "")
        text.append(segment.text, style)
        if position in numbers:
            text.append(f"[{numbers[position]}]", f"bold {style}")
    return text


def _render_end(generation: Generation, listed: list[Listed], screen: Screen) -> Iterator[Text]:
    if listed:
        yield Text("")
        longest = screen.label_columns or max(cell_len(source.label) for source in listed)
        labels = [shorten(source.label, longest) for source in listed]
        columns = max(map(cell_len, labels)) + 1  # titles stand below each other
        for source, label in zip(listed, labels, strict=True):
            line = render_source(
                source.segment,
                is_union="+" in generation.corpus,
                width=screen.width and screen.width - columns,
            )
            yield Text.assemble((set_cell_size(label, columns), source.colour), line)
        if num_more := len(rank_documents(generation.segments)) - len(listed):
            noun = "document" if num_more == 1 else "documents"
            yield Text(f"and {num_more} more {noun}: --sources all", "dim")
    yield Text("")
    yield _render_counts(generation, screen)


def _render_counts(generation: Generation, screen: Screen) -> Text:
    line = describe(generation)
    if screen.width is not None and len(line) > screen.width:
        line = line.replace(" · corpus ", "\ncorpus ")
    return Text(line, "dim")


def describe(generation: Generation) -> str:
    """Say in one line what a generation is made of: counts, share copied, index and speed."""
    copies = [segment for segment in generation.segments if segment.origin == CORPUS]
    share = 100 * sum(len(copy.text) for copy in copies) / max(1, len(generation.text))
    num_documents = len({get_key(segment) for segment in copies})
    noun = "document" if num_documents == 1 else "documents"
    index = "+".join(part[:12] for part in generation.index.split("+"))
    seconds = sum(generation.seconds.values())  # 0 for what took no ten thousandth of one
    speed = f" · {generation.num_tokens / seconds:.0f} tokens/s" if seconds else ""
    return (
        f"{generation.num_tokens} tokens in {generation.num_steps} steps "
        f"· {share:.0f} % of the text copied from {num_documents} {noun} "
        f"· corpus {generation.corpus} · index {index} "
        f"· seed {generation.decoding.seed}{speed}"
    )


def find_screen(max_sources: int | None) -> Screen:
    """Look where standard output goes: the terminal, or what has no width."""
    if not sys.stdout.isatty():
        return Screen(max_sources=max_sources)
    columns, lines = shutil.get_terminal_size(fallback=(80, 0))
    return Screen(columns, lines or None, max_sources)


def write_generation(generation: Generation, *, max_sources: int | None) -> None:
    """Print one generation."""
    screen = find_screen(max_sources)
    console = Console(highlight=False, width=screen.width, soft_wrap=screen.width is None)
    for line in render_generation(generation, screen):
        console.print(line)
    console.print()


class SegmentWriter:
    """Prints segments as they come: as JSON lines, or as coloured text after the prefix."""

    def __init__(self, prefix: str, *, is_json: bool, max_sources: int | None) -> None:
        self._is_json = is_json
        self._max_sources = max_sources
        self._colours: dict[SourceKey, str] = {}
        self._console = Console(highlight=False, soft_wrap=True)
        if not is_json:
            self._console.print(Text(prefix, style="bold"), end="")

    def write(self, _number: int, segment: Segment) -> None:
        """Print one segment."""
        if self._is_json:
            echo_json(segment.to_json())
        else:
            style = self._colour(segment) if segment.origin == CORPUS else ""
            self._console.print(Text(segment.text, style), end="")
        sys.stdout.flush()

    def _colour(self, segment: Segment) -> str:
        return self._colours.setdefault(get_key(segment), get_colour(len(self._colours)))

    def finish(self, generation: Generation) -> None:
        """Print what comes after the last segment: the whole as JSON, or the source list."""
        if self._is_json:
            echo_json(generation.to_json())
            return
        self._console.print()
        screen = find_screen(self._max_sources)
        ranked, weights = rank_documents(generation.segments), weigh_copies(generation.segments)
        besides = [_render_text(generation, {}, {}), _render_counts(generation, screen)]
        columns = screen.label_columns or QUOTE_COLUMNS
        listed = []
        for copies in ranked[: screen.count_sources(len(ranked), besides=besides)]:
            best = generation.segments[max(copies, key=lambda position: weights[position])]
            label = f"“{shorten(' '.join(best.text.split()), columns - 2)}”"
            listed.append(Listed(best, label, self._colour(best)))
        for line in _render_end(generation, listed, screen):
            self._console.print(line)
