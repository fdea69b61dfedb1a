"""The examples of the village, in a cache of their own."""

from pathlib import Path

import pytest

from cog.baselines.retro.config import make_config
from cog.baselines.retro.examples import RetroExamples, load_examples
from cog.index.read.reader import PhraseIndex
from cog.model.load import CogModel
from cog.params import RetroParams, load_params
from cog.paths import ProjectPaths
from cog.progress import SilentProgress


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COG_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def settings(village: ProjectPaths) -> RetroParams:
    return load_params(village.params).retro


@pytest.fixture
def examples(
    tiny_cog_model_alone: CogModel, village_index: PhraseIndex, settings: RetroParams
) -> RetroExamples:
    return load_examples(
        village_index,
        tiny_cog_model_alone,
        config=make_config(tiny_cog_model_alone, settings),
        settings=settings,
        progress=SilentProgress(),
    )
