"""Local files of a corpus: a file or folder goes in; what is taken, and what not, comes out."""

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cog.cards import Format
from cog.corpus.decoding import RawFile, is_text, tell_container
from cog.corpus.sources import SOURCE_FILE, SUFFIXES, describe_files, find_kind, strip_packing
from cog.errors import CorpusError
from cog.paths import is_member

BINARY = ("parquet", "sqlite")  # kinds whose files are no text
_UNUSABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Survey:
    """What a local source gives."""

    folder: Path  # where the names begin
    taken: list[str]  # names of the files that are taken, in alphabetical order
    # names of the others, and why each is not taken; hidden files are passed over
    left: dict[str, str]


def copy_files(survey: Survey, raw: Path) -> None:
    """Copy the files that are taken into ``raw/``; one that cannot be read is refused."""
    for name in survey.taken:
        _check_database(survey.folder / name)
        (raw / name).parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copyfile(survey.folder / name, raw / name)
        except OSError as error:
            raise _unreadable(name, error) from None


def survey_files(path: Path, *, members: Sequence[str], kinds: Sequence[str]) -> Survey:
    """Choose the files that a local source gives: a file, whatever its ending, or a folder.

    Without glob patterns (``members``) the usual endings of a kind are taken, of text also files
    without an ending that look like text. The first of the kinds is wanted, the others will do
    where there is none of it.
    """
    try:
        if path.is_file():
            return Survey(path.parent, [_check_name(path.name)], {})
        if path.is_dir():
            return _survey_folder(path, members=members, kinds=kinds)
        is_there = path.exists() or path.is_symlink()
    except (OSError, ValueError) as error:
        raise _unreadable(str(path), error) from None
    found = "neither, or a link to nothing" if is_there else f"no such path: {path}"
    raise CorpusError(
        "the source must be a file or a folder",
        found=found,
        run="pass --source DIR_OR_FILE, or mend source.path of the card",
    )


def list_kinds(card_format: Format) -> list[str]:
    """Name the kind of a card, and that of its local form if it has one."""
    return [card_format.kind, *([card_format.local.kind] if card_format.local else [])]


def _survey_folder(folder: Path, *, members: Sequence[str], kinds: Sequence[str]) -> Survey:
    names = sorted(iter_file_names(folder))
    left: dict[str, str] = {}
    for kind in kinds:
        reasons = {name: _find_reason(folder, name, members=members, kind=kind) for name in names}
        left = {name: reason for name, reason in reasons.items() if reason}
        taken = [name for name in names if name not in left]
        for name in taken:
            _check_file(folder, name)
        if taken:
            return Survey(folder, taken, {_show(name): reason for name, reason in left.items()})
    endings = ", ".join(members or [suffix for kind in kinds for suffix in SUFFIXES[kind]])
    raise CorpusError(
        f"the folder must hold files that end in or match {endings}",
        found=f"{describe_files(0, left)} in {folder}",
        run="name them with --members (source.members of a card), such as --members '*.ending'",
    )


def _find_reason(folder: Path, name: str, *, members: Sequence[str], kind: str) -> str:
    # why a file is not taken; empty if it is
    if members:
        return "" if is_member(name, members) else "not among the members"
    found = tell_kind(folder, name)
    if found == kind:
        return "" if kind in BINARY else _find_disguise(RawFile(folder / name, name, name))
    return f"of kind {found}" if found in SUFFIXES else found


def _find_disguise(file: RawFile) -> str:
    # what lies under the name of a text; what cannot be read is told where it is needed
    try:
        container = tell_container(file) if file.path.is_file() else None
    except (CorpusError, OSError):
        return ""
    return f"{container} by content" if container else ""


def tell_kind(folder: Path, name: str) -> str:
    """Tell the kind of a file by its ending, else by its content; or why it is of none."""
    kind = find_kind(name)
    ending = PurePosixPath(strip_packing(name)).suffix
    if kind is not None or ending:
        return kind or f"with the ending {ending}"
    path = folder / name
    if not path.is_file():
        return "no files, but links to nothing, devices, pipes or sockets"
    return "text" if is_text(RawFile(path, name, name)) else "without an ending, not text"


def iter_file_names(folder: Path) -> Iterator[str]:
    """Name the files of a folder and of those in it; linked folders are followed, each once.

    Hidden files, and what lies in hidden folders, are passed over.
    """
    seen: set[tuple[int, int]] = set()

    def refuse(error: OSError) -> None:
        raise _unreadable(str(error.filename), error)

    for place, folders, files in os.walk(folder, followlinks=True, onerror=refuse):
        status = Path(place).stat()
        # by name: which of two names of one folder comes first must not hang on the disk
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if (status.st_dev, status.st_ino) in seen:
            folders[:] = []
            continue
        seen.add((status.st_dev, status.st_ino))
        for name in files:
            if not name.startswith("."):
                yield (Path(place) / name).relative_to(folder).as_posix()


def _check_file(folder: Path, name: str) -> None:
    _check_name(name)
    if not (folder / name).is_file():
        is_link = (folder / name).is_symlink()
        raise CorpusError(
            f"{name} must be a file",
            found="a link to nothing" if is_link else "a device, a pipe or a socket",
            run=f"mend or remove it in {folder}, or set source.members of the card",
        )


def _show(name: str) -> str:
    return ascii(name) if _UNUSABLE.search(name) else name


def _check_name(name: str) -> str:
    if _UNUSABLE.search(name) or name.split("/")[-1] == SOURCE_FILE:
        raise CorpusError(
            f"a file name must be UTF-8, without control characters, and not {SOURCE_FILE}",
            found=ascii(name),
            run="rename the file",
        )
    return name


def _check_database(path: Path) -> None:
    # What a running SQLite has not merged yet lies beside the database.
    journal = path.with_name(f"{path.name}-wal")
    if find_kind(path.name) == "sqlite" and journal.is_file() and journal.stat().st_size > 0:
        raise CorpusError(
            f"{path.name} must be a database that nothing is writing to",
            found=f"{journal.name} holds changes that are not in it yet",
            run=f"sqlite3 {path.name} 'PRAGMA wal_checkpoint(TRUNCATE)'",
        )


def _unreadable(name: str, error: OSError | ValueError) -> CorpusError:
    return CorpusError(
        f"{ascii(name)} must be readable",
        found=getattr(error, "strerror", None) or str(error),
        run="mend its permissions, or name another path",
    )
