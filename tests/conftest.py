"""Fixtures of all tests; threads are pinned before anything imports torch."""

import os
from pathlib import Path

import pytest

from cog.paths import ProjectPaths
from tests.tiny_project import make_project

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["DVC_NO_ANALYTICS"] = "1"
os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"


LONG = (
    "test_pipeline.py",
    "test_kill.py",
    "test_tracking.py",
    "test_plausibility.py",
    "test_job.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # long files begin first, so that no worker is left with one at the end
    items.sort(key=lambda item: item.path.name not in LONG)


@pytest.fixture
def project(tmp_path: Path) -> ProjectPaths:
    """A project with two cards over one tiny text file; nothing is built, the model is absent."""
    return make_project(tmp_path / "project")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The project's own root."""
    return Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder of the real form with random weights of width 16."""
    from tests.model_fixtures import make_tiny_model

    return make_tiny_model(tmp_path_factory.mktemp("tiny-model"))


@pytest.fixture(scope="session")
def village(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> ProjectPaths:
    """A project whose corpus `village` is built; tests must not change it."""
    from tests.built_project import build_village

    return build_village(tmp_path_factory.mktemp("village") / "project", tiny_model)


@pytest.fixture(scope="session")
def empty_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with MLflow's tables and nothing in them."""
    from mlflow import MlflowClient

    path = tmp_path_factory.mktemp("runs") / "mlflow.db"
    MlflowClient(tracking_uri=f"sqlite:///{path}").search_experiments()
    return path
