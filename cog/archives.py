"""Archives: a zip or tar file and patterns go in, the members that fit lie in a folder."""

import gzip
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO

from cog.errors import AssetError
from cog.paths import is_below, is_member

ZIP_SUFFIXES = (".zip", ".whl")
SUFFIXES = (*ZIP_SUFFIXES, ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
BLOCK_BYTES = 1 << 20
Member = tuple[str, bool, Callable[[], IO[bytes]]]  # name, whether it is a file, its content


def is_archive(name: str) -> bool:
    """Tell an archive from another file by its ending."""
    return name.lower().endswith(SUFFIXES)


def unpack_members(
    archive: Path, patterns: Sequence[str], folder: Path, *, max_bytes: int | None = None
) -> list[str]:
    """Write the members of an archive that fit into a folder; gives their names, sorted.

    Each pattern (of ``is_member``) must fit one; ``max_bytes`` is of all members together.
    """
    names: set[str] = set()
    num_other, left = 0, max_bytes
    unmatched = list(patterns)
    with _open(archive) as members:
        for name, is_file, get_content in members:
            if not is_member(name, patterns):
                num_other += is_file
                continue
            _check_member(archive, name, is_file=is_file)
            unmatched = [each for each in unmatched if not is_member(name, [each])]
            with get_content() as content:
                left = _write(content, folder / name, archive=archive, left=left, limit=max_bytes)
            names.add(name)
    if unmatched:
        raise AssetError(
            f"{archive.name} must hold {unmatched[0]}",
            found=f"no such member among {len(names) + num_other}",
        )
    return sorted(names)


def _check_member(archive: Path, name: str, *, is_file: bool) -> None:
    if not is_below(name):
        raise AssetError(f"members of {archive.name} must stay inside it", found=name)
    if not is_file:
        found = f"{name}, a link or a device"
        raise AssetError(f"members of {archive.name} must be files", found=found)


def _write(
    content: IO[bytes], path: Path, *, archive: Path, left: int | None, limit: int | None
) -> int | None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        while block := content.read(BLOCK_BYTES):
            if left is not None:
                left -= len(block)
                if left < 0:
                    raise AssetError(
                        f"what is unpacked of {archive.name} must have {limit:,} bytes at most",
                        found="more",
                        run="raise source.max_bytes in the card if that is right",
                    )
            file.write(block)
    return left


@contextmanager
def _open(archive: Path) -> Iterator[Iterator[Member]]:
    is_zip = archive.name.lower().endswith(ZIP_SUFFIXES)
    try:
        if is_zip:
            with zipfile.ZipFile(archive) as packed:
                yield _iter_zip(packed)
        else:
            with tarfile.open(archive) as tar:
                yield _iter_tar(tar)
    # what the modules raise for damaged, cut off, encrypted or oddly packed files
    except (
        zipfile.BadZipFile,
        tarfile.TarError,
        gzip.BadGzipFile,
        lzma.LZMAError,
        zlib.error,
        EOFError,
        FileNotFoundError,
        RuntimeError,
    ) as error:
        kind = "zip" if is_zip else "tar"
        raise AssetError(
            f"{archive.name} must be a whole {kind} archive", found=str(error)
        ) from error


def _iter_zip(packed: zipfile.ZipFile) -> Iterator[Member]:
    for info in packed.infolist():
        if not info.is_dir():
            yield info.filename, True, partial(packed.open, info)


def _iter_tar(tar: tarfile.TarFile) -> Iterator[Member]:
    for info in tar:  # in the order of the file, which a packed one is read in only once
        if not info.isdir():
            yield info.name.removeprefix("./"), info.isreg(), partial(_open_member, tar, info)


def _open_member(tar: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    content = tar.extractfile(info)
    assert content is not None  # it is a file
    return content
