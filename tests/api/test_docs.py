"""docs/python.md: its code runs, block after block, on a tiny project."""

import re
import shutil
from pathlib import Path

import pytest

from cog.api.project import Project
from cog.paths import ProjectPaths

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_every_block_runs(
    shipped_names: ProjectPaths,
    repository: Path,
    tmp_path: Path,
    empty_runs: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page = (repository / "docs" / "python.md").read_text(encoding="utf-8")
    blocks = BLOCK.findall(page)
    assert len(blocks) == page.count("```python")
    own = ProjectPaths(shutil.copytree(shipped_names.root, tmp_path / "own"))
    shutil.copy(empty_runs, own.runs_database)
    monkeypatch.chdir(own.root)
    monkeypatch.setenv("COG_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    names: dict[str, object] = {}
    for number, block in enumerate(blocks, start=1):
        exec(compile(block, f"docs/python.md, block {number}", "exec"), names)
    assert isinstance(names["project"], Project)


def test_every_public_name_is_documented(repository: Path) -> None:
    from cog.api.corpus import Corpus
    from cog.api.generator import Generator
    from cog.api.stream import Stream
    from cog.api.text import Text

    page = (repository / "docs" / "python.md").read_text(encoding="utf-8")
    for kind in (Project, Corpus, Generator, Stream, Text):
        for name in vars(kind):
            if not name.startswith("_"):
                assert f".{name}" in page, f"docs/python.md lacks {kind.__name__}.{name}"
