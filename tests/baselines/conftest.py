"""The tiny model loaded, and a project with a datastore."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cog.baselines.datastore import build_corpus_datastore
from cog.baselines.systems import open_system
from cog.decoding.generator import CopyGenerator
from cog.index.read.reader import PhraseIndex, open_index
from cog.model.load import CogModel, load_index_model, load_model
from cog.model.phrase_encoder import PhraseEncoder
from cog.params import load_params
from cog.paths import ProjectPaths
from cog.progress import SilentProgress

OpenSystem = Callable[[str], CopyGenerator]


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
    with open_index(village.corpus("village")) as index:
        yield index


@pytest.fixture(scope="module")
def open_named(village: ProjectPaths) -> Iterator[OpenSystem]:
    """Opens a system once."""
    params = load_params(village.params)
    opened: dict[str, CopyGenerator] = {}
    with ExitStack() as stack:

        def open_named(system: str) -> CopyGenerator:
            if system not in opened:
                context = open_system(
                    village, params, corpus_id="village", name=system, device="cpu"
                )
                generator = stack.enter_context(context)
                assert isinstance(generator, CopyGenerator)
                opened[system] = generator
            return opened[system]

        yield open_named


@pytest.fixture(scope="module")
def cog(open_named: OpenSystem) -> CopyGenerator:
    return open_named("cog")


@pytest.fixture(scope="module")
def phrase_encoder(village: ProjectPaths) -> PhraseEncoder:
    return load_index_model(village.root / "models" / "tiny").phrase_encoder
