"""Fixtures of evaluation: a project of its own, and MLflow's tables made once."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from cog.evaluation.protocol import GROUPS, Protocol, make_protocol
from cog.evaluation.session import Plan
from cog.params import Params, load_params
from cog.paths import ProjectPaths


@pytest.fixture
def own_village(village: ProjectPaths, tmp_path: Path) -> ProjectPaths:
    """A built project that the test may change."""
    shutil.copytree(village.root, tmp_path / "own", symlinks=True)
    return ProjectPaths(tmp_path / "own")


@pytest.fixture
def params(village: ProjectPaths) -> Params:
    return load_params(village.params)


@pytest.fixture
def protocol(params: Params) -> Protocol:
    return make_protocol("default", params.evaluate)


@pytest.fixture
def plan(protocol: Protocol, params: Params) -> Plan:
    return Plan(
        corpus_id="village",
        prompt_corpus_id="village",
        system="cog",
        decoding=params.generate.decoding,
        protocol=replace(protocol, seeds=(0, 1)),
        groups=GROUPS,
        allow_few_texts=False,
        allow_contamination=False,
        device="cpu",
    )


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, so that numbers are measured by the test."""
    monkeypatch.setenv("COG_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return tmp_path / "cache"
