"""What lies in raw/: files go in, a record of them with checksums comes out, and back."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath

from cog.cards import Card, Format, LocalFormat
from cog.corpus.decoding import PACKINGS, RawFile
from cog.errors import CorpusError
from cog.hashing import hash_file
from cog.paths import is_below
from cog.reading import read_record

SOURCE_FILE = "SOURCE.json"
MAX_NAMED = 3  # files that are named for each reason why files are not taken

HTML = (".html", ".htm", ".xhtml")
# Endings of the files of each kind; text and json kinds may be packed besides.
SUFFIXES = {
    "text": (".txt", ".text", ".md", ".markdown", ".rst", ".raw", ".tokens", *HTML),
    "jsonl": (".jsonl", ".ndjson"),
    "json": (".json",),
    "csv": (".csv", ".tsv"),
    "parquet": (".parquet",),
    "sqlite": (".db", ".sqlite", ".sqlite3"),
}


@dataclass(frozen=True, slots=True)
class RawEntry:
    """One raw file as it was received."""

    name: str  # its name below `raw/`
    num_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """Content of ``raw/SOURCE.json``."""

    origin: str  # `wheel`, `hub`, `files`, `url` or `local` (given with `--source`)
    layout: str  # `format` or `local`: which part of the card says how the files are read
    files: tuple[RawEntry, ...]
    # files of the source that were not taken, and why
    left: dict[str, str] = field(default_factory=dict)
    # what a hub's branch or tag stood for; empty where nothing had to be found out
    commit: str = ""

    def describe(self) -> str:
        """Say what was taken and what was left."""
        commit = f", commit {self.commit}" if self.commit else ""
        return f"{describe_files(len(self.files), self.left)}{commit}"


def describe_files(num_taken: int, left: Mapping[str, str]) -> str:
    """Say what is taken: ``2 of 5 files taken (not taken: 3 with the ending .png: a.png, ...)``."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in left.items():
        by_reason.setdefault(reason, []).append(name)
    groups = []
    for reason, names in sorted(by_reason.items(), key=lambda item: -len(item[1])):
        more = ", ..." if len(names) > MAX_NAMED else ""
        groups.append(f"{len(names)} {reason}: {', '.join(names[:MAX_NAMED])}{more}")
    rest = f" (not taken: {'; '.join(groups)})" if groups else ""
    return f"{num_taken} of {num_taken + len(left)} files taken{rest}"


def find_kind(name: str) -> str | None:
    """Tell the kind of a file by its ending, if it is one of a card's."""
    unpacked = strip_packing(name).lower()
    for kind, suffixes in SUFFIXES.items():
        if unpacked.endswith(suffixes):
            return kind
    return None


def strip_packing(name: str) -> str:
    """Leave out ``.gz`` or ``.zst`` at the end of a name."""
    packed = next((each for each in PACKINGS if name.lower().endswith(each)), "")
    return name[: len(name) - len(packed)]


def is_html(name: str) -> bool:
    """Tell a page from a text by its ending."""
    return strip_packing(name).lower().endswith(HTML)


def choose_layout(names: Iterable[str], card_format: Format) -> str:
    """Tell which part of a card says how files are read: ``local`` or ``format``."""
    kinds = {find_kind(name) for name in names}
    local = card_format.local
    is_local = local is not None and kinds != {card_format.kind} and kinds <= {local.kind, None}
    return "local" if is_local else "format"


def get_layout(card: Card, record: SourceRecord) -> LocalFormat:
    """Tell how the raw files are read."""
    assert card.format is not None
    chosen = card.format
    if record.layout == "local" and chosen.local is not None:
        return chosen.local
    return LocalFormat(chosen.kind, chosen.documents, chosen.heading)


def describe_file(folder: Path, name: str) -> RawEntry:
    """Measure a file of ``raw/``."""
    return RawEntry(name, (folder / name).stat().st_size, hash_file(folder / name))


def save_source_record(folder: Path, record: SourceRecord) -> None:
    """Write ``SOURCE.json``."""
    content = asdict(record)
    if not record.commit:
        del content["commit"]  # the bytes of what is no data set of a hub stay what they were
    text = json.dumps(content, indent=1, ensure_ascii=False)
    (folder / SOURCE_FILE).write_text(text + "\n", encoding="utf-8")


def load_source_record(folder: Path) -> SourceRecord:
    """Read ``SOURCE.json`` and check that the files it names are there, of their size."""
    corpus_id = folder.parent.name
    path = folder / SOURCE_FILE
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise _broken(corpus_id, f"no {folder.name}/{SOURCE_FILE}") from None
    except ValueError as error:
        raise _broken(corpus_id, f"{SOURCE_FILE}: {error}") from None
    try:
        record = read_record(SourceRecord, content, error=CorpusError, file=SOURCE_FILE)
    except CorpusError as error:
        raise _broken(corpus_id, str(error)) from None
    for entry in record.files:
        if not is_below(entry.name):
            raise _broken(corpus_id, f"{SOURCE_FILE} names {entry.name}, outside its folder")
        found = folder / entry.name
        if not found.is_file() or found.stat().st_size != entry.num_bytes:
            raise _broken(corpus_id, f"{entry.name} is missing or of another size")
    return record


def list_raw_files(folder: Path, record: SourceRecord) -> list[RawFile]:
    """Name the raw files and what the ids of their documents begin with."""
    stems = _find_stems([entry.name for entry in record.files])
    return [
        RawFile(folder / entry.name, entry.name, stem)
        for entry, stem in zip(record.files, stems, strict=True)
    ]


def _find_stems(names: Sequence[str]) -> list[str]:
    parents = [PurePosixPath(name).parts[:-1] for name in names]
    num_common = len(os.path.commonprefix(parents))
    shortened = ["/".join(name.split("/")[num_common:]) for name in names]
    stems = [_drop_suffix(name) for name in shortened]
    counts = Counter(stems)  # a.txt and a.md keep their endings, so that ids differ
    return [name if counts[stem] > 1 else stem for name, stem in zip(shortened, stems, strict=True)]


def _drop_suffix(name: str) -> str:
    stem = strip_packing(name)
    for suffixes in SUFFIXES.values():
        for suffix in suffixes:
            if stem.lower().endswith(suffix) and not stem.endswith(f"/{suffix}"):
                return stem[: -len(suffix)]
    return stem


def _broken(corpus_id: str, found: str) -> CorpusError:
    run = f"cog corpus fetch {corpus_id}"  # which says so if it needs to be told from where
    return CorpusError(f"corpus {corpus_id} needs its raw files", found=found, run=run)
