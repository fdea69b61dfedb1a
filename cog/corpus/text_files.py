"""Text files without a card: paths go in, documents come out, by the form that each file shows."""

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from cog.cards import WIKITEXT_HEADING
from cog.corpus.decoding import Line, RawFile, iter_lines
from cog.corpus.local_files import survey_files
from cog.corpus.normalisers import get_normaliser
from cog.corpus.pages import read_page
from cog.corpus.reassembly import Unit, iter_units
from cog.corpus.selection import SeenTexts
from cog.corpus.sources import describe_files, find_kind, is_html
from cog.corpus.tally import Tally
from cog.errors import CorpusError
from cog.records import Document

HEADING = r"= (?P<title>\S(?:.*\S)?) ="
MAX_LINES_LOOKED_AT = 2000
SUFFIXES = (".gz", ".zst", ".txt", ".tokens", ".raw", ".en")

_HEADING = re.compile(HEADING)
_SENTENCE = re.compile(r".*[.!?:;][\"'”’)\]]*\s*")
_WIKITEXT_LINE = re.compile(r" = \S.* = ")


@dataclass(frozen=True, slots=True)
class TextForm:
    """How the lines of a file become documents."""

    documents: str  # rule of `cog.corpus.reassembly`
    heading: str | None
    normaliser: str
    meaning: str  # the rule in words


WIKITEXT = TextForm("heading", WIKITEXT_HEADING, "wikitext-v1", "WikiText")
HEADED = TextForm("heading", HEADING, "plain-v1", "a document at each line `= Title =`")
PARAGRAPHS = TextForm("blank-line", None, "plain-v1", "a document between blank lines")
LINES = TextForm("line", None, "plain-v1", "a document a line")
RARE_LINES = 50  # of text for one blank line: fewer separate nothing where lines are sentences


def find_form(path: Path) -> TextForm:
    """Tell how a text file is written by its first lines."""
    lines = [line.text for line in islice(_iter_file_lines(path), MAX_LINES_LOOKED_AT)]
    if any(_WIKITEXT_LINE.fullmatch(line) for line in lines):
        return WIKITEXT
    if any(
        _HEADING.fullmatch(line) and (number == 0 or not lines[number - 1].strip())
        for number, line in enumerate(lines)
    ):
        return HEADED
    return PARAGRAPHS if _has_paragraphs(lines) else LINES


def _has_paragraphs(lines: Sequence[str]) -> bool:
    # A blank line at an end separates nothing, and a stray one does not make one document of a
    # thousand sentences, each in its line; lines of wrapped prose do not end as sentences do.
    text = [bool(line.strip()) for line in lines]
    num_gaps = (
        sum(now and not before for before, now in itertools.pairwise(text[text.index(True) :]))
        if any(text)
        else 0
    )
    num_sentences = sum(1 for line in lines if _SENTENCE.fullmatch(line))
    is_rare = num_gaps * RARE_LINES < sum(text)
    return num_gaps > 0 and not (is_rare and 2 * num_sentences > sum(text))


def iter_text_documents(paths: Sequence[Path]) -> Iterator[Document]:
    """Read the documents of text files; a text that was there before is left out."""
    seen = SeenTexts()
    for number, path in enumerate(paths):
        form = find_form(path)
        normalise = get_normaliser(form.normaliser)
        stem = _stem(path) if len(paths) == 1 else f"{_stem(path)}-{number + 1}"
        units = iter_units(_iter_file_lines(path), documents=form.documents, heading=form.heading)
        for unit in units:
            document = _read_unit(unit, normalise(unit.text), path=path, stem=stem)
            if document.text and seen.add(document.text):
                yield document


def list_text_files(paths: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """Put the text files of folders, and of those in them, in their place.

    Gives files, those of a folder by name; and for each folder that holds others, which.
    """
    files: list[Path] = []
    notes = []
    for path in paths:
        if not path.is_dir():
            files.append(_check_file(path))
            continue
        survey = survey_files(path, members=(), kinds=("text",))
        files += [path / name for name in survey.taken]
        if survey.left:
            notes.append(f"{path}: {describe_files(len(survey.taken), survey.left)}")
    return files, notes


def _check_file(path: Path) -> Path:
    kind = find_kind(path.name)
    if path.is_file() and kind in ("text", None):
        return path
    raise CorpusError(
        f"{path} must be a text file",
        found=f"{kind}, whose fields a card names" if path.is_file() else "no such file",
        run=f"cog corpus add ID {path}, then cog train --corpus ID"
        if path.is_file()
        else "name text files, plain or packed, or folders of them",
    )


def _read_unit(unit: Unit, text: str, *, path: Path, stem: str) -> Document:
    part = f":{unit.part}" if unit.part else ""  # of a document of over 16 M characters
    return Document(
        document_id=f"{stem}:{unit.number}{part}",
        title=unit.title,
        text=text.replace("\0", ""),
        url="",
        licence="",
        source=f"{path.name}:{unit.number}",
    )


def _iter_file_lines(path: Path) -> Iterator[Line]:
    file = RawFile(_check_file(path), path.name, _stem(path))
    try:
        if is_html(path.name):
            yield from read_page(file, "utf-8", tally=Tally("fail"))[1]
        else:
            yield from iter_lines(file, "utf-8", tally=Tally("fail"))
    except CorpusError as error:  # what it says to run is for files that have a card
        raise CorpusError(error.wanted, found=error.found, run="mend the file") from None


def _stem(path: Path) -> str:
    name = path.name
    while (suffix := Path(name).suffix) in SUFFIXES:
        name = name.removesuffix(suffix)
    return name
