"""Versions that DVC's cache holds: what a folder's list there says is not trusted."""

import hashlib
import json
from pathlib import Path

import pytest
import yaml

from cog.index.versions.recorded import Recorded, is_cached, iter_recorded, record_version
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


def test_a_line_that_a_power_cut_left_unfinished_hides_no_other(tmp_path: Path) -> None:
    paths = ProjectPaths(tmp_path)
    corpus = paths.corpus("village")
    corpus.root.mkdir(parents=True)
    corpus.manifest.write_text("{}")
    checksums = {corpus.manifest: hashlib.md5(b"{}").hexdigest(), corpus.index: "00cc.dir"}
    outs = [
        {"path": str(path.relative_to(tmp_path)), "md5": md5} for path, md5 in checksums.items()
    ]
    paths.dvc_lock.write_text(yaml.safe_dump({"stages": {"index@village": {"outs": outs}}}))
    corpus.recorded.write_text('{"revision": "", "ti')
    record_version(paths, "village")
    paths.dvc_lock.unlink()  # from here on the line alone names it
    assert list(iter_recorded(paths, "village")) == [Recorded("", "", *checksums.values())]
