"""A project of two corpora, and a server on it."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from cog.index.versions.activation import switch_corpus
from cog.paths import ProjectPaths
from tests.built_project import add_corpus
from tests.serve.serving import RunningServer, run_server
from tests.tiny_project import TINY_CORPUS


@pytest.fixture(scope="session")
def two_corpora(tmp_path_factory: pytest.TempPathFactory, village: ProjectPaths) -> ProjectPaths:
    """A project with the corpora `village` and `other`, of which `village` is switched on."""
    root = tmp_path_factory.mktemp("served") / "project"
    shutil.copytree(village.root, root)
    paths = ProjectPaths(root)
    lines = [json.loads(line) for line in TINY_CORPUS.read_text("utf-8").splitlines()]
    add_corpus(paths, "other", [json.dumps({**line, "by": "MIT"}) for line in lines[:6]])
    switch_corpus(paths, "village")
    return paths


@pytest.fixture(scope="session")
def server(two_corpora: ProjectPaths) -> Iterator[RunningServer]:
    """A server on the two corpora; a test that switches switches back to `village`."""
    with run_server(two_corpora) as running:
        yield running


@pytest.fixture
def own_project(tmp_path: Path, two_corpora: ProjectPaths) -> ProjectPaths:
    """A copy of the two corpora that a test may change; before `village` nothing was active."""
    shutil.copytree(two_corpora.root, tmp_path / "own")
    paths = ProjectPaths(tmp_path / "own")
    paths.active.unlink()
    switch_corpus(paths, "village")
    return paths
