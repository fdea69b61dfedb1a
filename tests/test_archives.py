"""Archives: their members by patterns, and what is refused of them."""

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from cog.archives import is_archive, unpack_members
from cog.errors import AssetError

FILES = {"texts/b.txt": b"second", "texts/a.txt": b"first", "texts/more/c.txt": b"c", "d.md": b"d"}
KINDS = ("a.zip", "a.tar", "a.tar.gz", "a.tgz", "a.tar.xz")


def make_archive(path: Path, files: dict[str, bytes] = FILES) -> Path:
    if path.suffix in (".zip", ".whl"):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
            for name, content in files.items():
                packed.writestr(name, content)
        return path
    mode = {".tar": "w", ".gz": "w:gz", ".tgz": "w:gz", ".xz": "w:xz"}[path.suffix]
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_members_that_fit_are_unpacked(tmp_path: Path, kind: str) -> None:
    archive = make_archive(tmp_path / kind)
    assert is_archive(kind.upper())
    names = unpack_members(archive, ["texts/*.txt", "*.md"], tmp_path / "out")
    assert names == ["d.md", "texts/a.txt", "texts/b.txt"]
    assert (tmp_path / "out" / "texts" / "a.txt").read_bytes() == b"first"
    assert not (tmp_path / "out" / "texts" / "more").exists()


@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_taken_is_refused(tmp_path: Path, kind: str) -> None:
    archive = make_archive(tmp_path / kind)
    for patterns, limit, message in (
        (
            ["d.md", "texts/*.json"],
            None,
            r"must hold texts/\*\.json; found: no such member among 4",
        ),
        (["*.txt"], 11, "what is unpacked of a.* must have 11 bytes at most; found: more"),
    ):
        with pytest.raises(AssetError, match=message):
            unpack_members(archive, patterns, tmp_path / "out", max_bytes=limit)
    assert len(unpack_members(archive, ["*.txt"], tmp_path / "out", max_bytes=12)) == 3
    outside = make_archive(tmp_path / f"out{kind}", {"../escaped.txt": b"x", "/etc/y.txt": b"y"})
    for pattern in ("../*.txt", "/etc/*.txt"):
        with pytest.raises(AssetError, match="must stay inside it"):
            unpack_members(outside, [pattern], tmp_path / "out")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_whole_archive_is_refused(tmp_path: Path, kind: str) -> None:
    archive = make_archive(tmp_path / kind, {"a.txt": bytes(range(256)) * 4096})
    whole = archive.read_bytes()
    for content in (b"", b"no archive", whole[: len(whole) // 2]):
        archive.write_bytes(content)
        with pytest.raises(AssetError, match=r"must (be a whole (zip|tar) archive|hold \*)"):
            unpack_members(archive, ["*"], tmp_path / "out")
    archive.unlink()
    with pytest.raises(AssetError, match="must be a whole"):
        unpack_members(archive, ["*"], tmp_path / "out")


def test_links_in_an_archive_are_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        info = tarfile.TarInfo("a.txt")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/hostname"
        tar.addfile(info)
    with pytest.raises(AssetError, match=r"must be files; found: a\.txt, a link or a device"):
        unpack_members(tmp_path / "a.tar", ["*"], tmp_path / "out")


def test_a_bomb_is_stopped(tmp_path: Path) -> None:
    archive = make_archive(tmp_path / "a.zip", {"a.txt": bytes(30_000_000)})
    assert archive.stat().st_size < 100_000
    with pytest.raises(AssetError, match="must have 1,000,000 bytes at most"):
        unpack_members(archive, ["*"], tmp_path / "out", max_bytes=1_000_000)
