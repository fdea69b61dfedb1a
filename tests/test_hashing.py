"""Hashes of files: one that is settled is read once, one that changes is read again."""

import hashlib
import os
from pathlib import Path

import pytest

from cog.hashing import UNSETTLED_SECONDS, hash_file, hash_settled_file


@pytest.mark.parametrize("age_seconds", [0, 2 * UNSETTLED_SECONDS])
def test_changed_file_has_another_hash_whatever_its_size_and_time(
    tmp_path: Path, age_seconds: int
) -> None:
    path = tmp_path / "weights"
    for content in (b"first", b"other"):
        path.write_bytes(content)
        time = path.stat().st_mtime_ns - age_seconds * 10**9
        os.utime(path, ns=(time, time))
        assert hash_settled_file(path) == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize(("seconds", "num_reads"), [(3600, 2), (-3600, 1)])
def test_file_is_read_once_only_where_it_is_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: int, num_reads: int
) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"content")
    reads = []

    def read(each: Path) -> str:
        reads.append(each)
        return hash_file(each)

    monkeypatch.setattr("cog.hashing.hash_file", read)
    monkeypatch.setattr("cog.hashing.UNSETTLED_SECONDS", seconds)
    assert {hash_settled_file(path) for _ in range(2)} == {hash_file(path)}
    assert len(reads) == num_reads
