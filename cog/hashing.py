"""Hashes: files, texts and words go in, digits or numbers come out."""

import hashlib
import time
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

UNSETTLED_SECONDS = 10  # longer than the steps of any file system's clock


def hash_file(path: Path) -> str:
    """sha256 of a file, 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_settled_file(path: Path) -> str:
    """sha256 of a file; one that has not been touched for a while is read once in a process.

    What was written just now is read each time: a clock that goes in steps may give the next change
    the same time.
    """
    stat = path.stat()
    touched = max(stat.st_mtime_ns, stat.st_ctime_ns)
    if time.time_ns() - touched < UNSETTLED_SECONDS * 10**9:
        return hash_file(path)
    return _hash_settled(path, stat.st_ino, stat.st_size, touched)


@lru_cache(maxsize=64)
def _hash_settled(path: Path, _inode: int, _size: int, _touched: int) -> str:
    return hash_file(path)


def digest_files(paths: Iterable[Path], *, num_bytes: int) -> str:
    """Digest the bytes of files, in order, and their names."""
    digest = hashlib.blake2b(digest_size=num_bytes)
    for path in paths:
        with path.open("rb") as file:
            content = hashlib.file_digest(file, hashlib.blake2b).digest()
        digest.update(path.name.encode() + b"\0" + content)
    return digest.hexdigest()


def hash_text(text: str) -> int:
    """64 bits of a text, which may hold lone surrogates."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


hash_word = lru_cache(maxsize=1 << 17)(hash_text)  # of what comes again and again
