"""The tiny model loaded, and a project with a datastore."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from cog.baselines.project import build_corpus_datastore
from cog.index.read.reader import PhraseIndex, open_index
from cog.model.load import CogModel, load_model
from cog.params import load_params
from cog.paths import ProjectPaths
from cog.progress import SilentProgress


@pytest.fixture(scope="session")
def tiny_cog_model(village: ProjectPaths) -> CogModel:
    return load_model(village.root / "models" / "tiny")


@pytest.fixture(scope="session")
def knn_village(village: ProjectPaths, tmp_path_factory: pytest.TempPathFactory) -> ProjectPaths:
    """The village with a datastore; tests must not change it."""
    root: Path = tmp_path_factory.mktemp("knn-village") / "project"
    shutil.copytree(village.root, root)
    paths = ProjectPaths(root)
    build_corpus_datastore(
        paths,
        "village",
        params=load_params(paths.params),
        progress=SilentProgress(),
        device="cpu",
    )
    return paths


@pytest.fixture
def tiny_cog_model_alone(village: ProjectPaths) -> CogModel:
    """Loaded anew, since hooks stay attached to it."""
    return load_model(village.root / "models" / "tiny", keeps_modules=True)


@pytest.fixture(scope="session")
def village_index(village: ProjectPaths) -> Iterator[PhraseIndex]:
    with open_index(village.corpus("village"), locks=village.locks) as index:
        yield index
