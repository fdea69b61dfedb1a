"""Local files of a corpus: a file or folder goes in, the names of what is taken come out."""

import fnmatch
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from cog.corpus.sources import SOURCE_FILE, SUFFIXES, find_kind
from cog.errors import CorpusError
from cog.records import Format

_UNUSABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


def copy_files(
    path: Path, raw: Path, *, members: Sequence[str] | None, card_format: Format
) -> list[str]:
    """Copy local files into ``raw/``.

    :param path: A file, which is taken whatever its ending, or a folder.
    :param raw: Where to.
    :param members: Glob patterns of names in the folder; None for the usual endings of the kind.
    :param card_format: The card's format.
    :returns: Names below ``raw/`` in alphabetical order.
    :raises CorpusError: If there is no such file, or one cannot be read.
    """
    names = list_source_files(path, members=members, card_format=card_format)
    folder = path.parent if path.is_file() else path
    for name in names:
        _check_database(folder / name)
        (raw / name).parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copyfile(folder / name, raw / name)
        except OSError as error:
            raise _unreadable(name, error) from None
    return names


def list_source_files(
    path: Path, *, members: Sequence[str] | None, card_format: Format
) -> list[str]:
    """Name the files that a local source gives.

    :param path: A file, which is taken whatever its ending, or a folder.
    :param members: Glob patterns of names in the folder; None for the usual endings of the kind.
    :param card_format: The card's format.
    :returns: Names below the folder in alphabetical order; hidden files are passed over.
    :raises CorpusError: If there is no such path, no such file in the folder, or one of them is
        broken.
    """
    try:
        if path.is_file():
            return [_check_name(path.name)]
        if path.is_dir():
            return _list_folder(path, members=members, card_format=card_format)
        is_there = path.exists() or path.is_symlink()
    except (OSError, ValueError) as error:
        raise _unreadable(str(path), error) from None
    found = "neither, or a link to nothing" if is_there else f"no such path: {path}"
    raise CorpusError(
        "the source must be a file or a folder",
        found=found,
        run="pass --source DIR_OR_FILE, or mend source.path of the card",
        about=str(path),
    )


def _list_folder(folder: Path, *, members: Sequence[str] | None, card_format: Format) -> list[str]:
    kinds = [card_format.kind, *([card_format.local.kind] if card_format.local else [])]
    names = sorted(iter_file_names(folder))
    # Files of the card's own kind come first, those of its local form where there is none.
    for kind in kinds:
        found = [name for name in names if _is_member(name, members=members, kind=kind)]
        if found:
            for name in found:
                _check_file(folder, name)
            return found
    endings = ", ".join(members or [suffix for kind in kinds for suffix in SUFFIXES[kind]])
    raise CorpusError(
        f"the folder must hold files that end in or match {endings}",
        found=f"none among {len(names)} files of {folder}",
        run="pass one file, or set source.members of the card",
        about=str(folder),
    )


def iter_file_names(folder: Path) -> Iterator[str]:
    """Name the files of a folder and of those in it; linked folders are followed, each once.

    :param folder: The folder.
    :yields: Names below it; hidden files, and what lies in hidden folders, are passed over.
    :raises CorpusError: If a folder cannot be listed.
    """
    seen: set[tuple[int, int]] = set()

    def refuse(error: OSError) -> None:
        raise _unreadable(str(error.filename), error)

    for place, folders, files in os.walk(folder, followlinks=True, onerror=refuse):
        status = Path(place).stat()
        folders[:] = [name for name in folders if not name.startswith(".")]
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
            about=name,
        )


def _check_name(name: str) -> str:
    if _UNUSABLE.search(name) or name.split("/")[-1] == SOURCE_FILE:
        raise CorpusError(
            f"a file name must be UTF-8, without control characters, and not {SOURCE_FILE}",
            found=ascii(name),
            run="rename the file",
            about=ascii(name),
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
            about=path.name,
        )


def _is_member(name: str, *, members: Sequence[str] | None, kind: str) -> bool:
    if members is not None:
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in members)
    return find_kind(name) == kind


def _unreadable(name: str, error: OSError | ValueError) -> CorpusError:
    return CorpusError(
        f"{ascii(name)} must be readable",
        found=getattr(error, "strerror", None) or str(error),
        run="mend its permissions, or name another path",
        about=name,
    )
