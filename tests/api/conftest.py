"""A built project with the names that the documentation uses."""

import shutil
from pathlib import Path

import pytest

from cog.paths import ProjectPaths
from cog.pipeline_file import CorpusEntry, add_corpus_entry
from tests.built_project import build_corpus
from tests.tiny_project import VILLAGE_CARD, make_project, write_yaml

NAMES = ("wiki-mini", "eu-law-mini")


@pytest.fixture(scope="session")
def shipped_names(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> ProjectPaths:
    """A project whose corpora are called as the shipped ones; both are the village."""
    paths = make_project(tmp_path_factory.mktemp("documented") / "project")
    shutil.copytree(tiny_model, paths.root / "models" / "tiny")
    for name in NAMES:
        add_corpus_entry(paths, name, CorpusEntry(name, "texts/village.jsonl"))
        write_yaml(paths.card(name), {**VILLAGE_CARD, "id": name})
        build_corpus(paths, name)
    return paths
