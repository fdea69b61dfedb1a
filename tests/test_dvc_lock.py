"""dvc.lock: checksums by path, whatever else the file holds."""

from pathlib import Path

from cog.dvc_lock import is_readable, load_outs, read_outs

LOCK = """
schema: '2.0'
stages:
  index@village:
    cmd: python workflows/index.py village
    outs:
    - {path: corpora/village/index, hash: md5, md5: aa.dir, size: 3, nfiles: 1}
    - {path: corpora/village/manifest.json, hash: md5, md5: bb, size: 3}
  broken: 3
  none: {outs: [{path: x}, 7, {path: y, md5: aa/../../../elsewhere}, {path: z, md5: 12}]}
"""


def test_outs_are_read_by_path(tmp_path: Path) -> None:
    outs = {"corpora/village/index": "aa.dir", "corpora/village/manifest.json": "bb"}
    assert read_outs(LOCK) == outs
    path = tmp_path / "dvc.lock"
    assert load_outs(path) == {}
    path.write_text(LOCK)
    assert load_outs(path) == outs
    path.write_bytes(b"\xff")
    assert load_outs(path) == {}


def test_text_that_is_not_a_lock_names_nothing() -> None:
    for text in ("", "[", "stages: 3", "- a", "stages: {a: {outs: 3}}"):
        assert read_outs(text) == {}


def test_a_lock_without_stages_is_not_readable(tmp_path: Path) -> None:
    path = tmp_path / "dvc.lock"
    assert is_readable(path)
    path.write_text(LOCK.replace("broken: 3", "broken: {}"))
    assert is_readable(path)
    for text in ("", "[", "words", "stages: 3", "- a", "stages: {a: 3}", "stages: 2026-99-99"):
        path.write_text(text)
        assert not is_readable(path), text
    path.write_bytes(b"\xff")
    assert not is_readable(path)
