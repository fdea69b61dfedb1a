"""A built project with the names that the documentation uses."""

import shutil
from pathlib import Path

import pytest

from cog.paths import ProjectPaths
from tests.built_project import build_corpus
from tests.tiny_project import TINY_PARAMS, VILLAGE_CARD, make_project, write_yaml

NAMES = ("wiki-mini", "eu-law-mini")


@pytest.fixture(scope="session")
def shipped_names(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> ProjectPaths:
    """A project whose corpora are called as the shipped ones; both are the village."""
    paths = make_project(tmp_path_factory.mktemp("documented") / "project")
    shutil.copytree(tiny_model, paths.root / "models" / "tiny")
    entries = {name: {"root": name, "source": "texts/village.jsonl"} for name in NAMES}
    write_yaml(paths.params, {**TINY_PARAMS, "corpora": entries})
    for name in NAMES:
        write_yaml(paths.card(name), {**VILLAGE_CARD, "id": name})
        build_corpus(paths, name)
    return paths
