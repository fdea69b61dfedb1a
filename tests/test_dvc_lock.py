"""dvc.lock: checksums by path, whatever else the file holds."""

from pathlib import Path

import pytest
import yaml

from cog.dvc_lock import is_readable, load_outs, read_outs, remove_stages
from cog.errors import ProjectError

LOCK = """
schema: '2.0'
stages:
  index@village:
    cmd: cog index build village
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


def test_the_lock_forgets_one_corpus(tmp_path: Path) -> None:
    path = tmp_path / "dvc.lock"
    remove_stages(path, "law")
    assert not path.exists()
    stages = {"fetch@law": {"cmd": "x"}, "fetch@law-mt": {"cmd": "y"}, "index@law": {"cmd": "z"}}
    path.write_text(yaml.safe_dump({"schema": "2.0", "stages": stages}), encoding="utf-8")
    remove_stages(path, "law")
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert content == {"schema": "2.0", "stages": {"fetch@law-mt": {"cmd": "y"}}}


@pytest.mark.parametrize("text", ["", "words", "- a", "{[", "stages: [1]", "stages: {fetch@a: 3}"])
def test_a_lock_that_dvc_cannot_read_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "dvc.lock"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ProjectError, match="next: git checkout HEAD dvc.lock, or rm dvc.lock"):
        remove_stages(path, "a")
    assert path.read_text(encoding="utf-8") == text
