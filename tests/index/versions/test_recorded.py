"""Versions that DVC's cache holds: what a folder's list there says is not trusted."""

import json
from pathlib import Path

import pytest

from cog.index.versions.recorded import Recorded, is_cached
from cog.paths import ProjectPaths


@pytest.mark.parametrize(("name", "is_whole"), [("0/a", True), ("0/../../a", False), ("/a", False)])
def test_a_version_whose_files_lie_outside_is_none(
    tmp_path: Path, name: str, is_whole: bool
) -> None:
    cache = tmp_path / ".dvc" / "cache" / "files" / "md5" / "00"
    cache.mkdir(parents=True)
    entries = [{"relpath": name, "md5": "00aa"}]
    for file, content in (("aa", "x"), ("bb", "{}"), ("cc.dir", json.dumps(entries))):
        (cache / file).write_text(content)
    assert is_cached(ProjectPaths(tmp_path), Recorded("", "", "00bb", "00cc.dir")) == is_whole
