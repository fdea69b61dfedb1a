"""What builds a corpus is named for what is installed."""

import sys

import pytest

from cog.corpus.next_step import name_build, name_rebuild
from cog.paths import ProjectPaths


def test_without_dvc_no_command_needs_it(
    project: ProjectPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.pipeline.touch()
    corpus = project.corpus("village")
    assert name_build(corpus) == name_rebuild("village") == "dvc repro index@village"
    monkeypatch.setitem(sys.modules, "dvc", None)  # the core of the package comes without it
    assert name_build(corpus) == "cog index build village"
    assert name_build(corpus, until="prepare") == (
        "cog corpus fetch village && cog corpus prepare village"
    )
    assert "dvc" not in name_rebuild("village")
