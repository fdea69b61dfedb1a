"""``cog paper datastore build|info``: what is printed, and what is refused."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cog.cli.main import cli
from cog.errors import CogError, CorpusNotFoundError, IndexMismatchError, IndexNotBuiltError
from cog.paths import ProjectPaths


@pytest.fixture
def own_village(village: ProjectPaths, tmp_path: Path) -> ProjectPaths:
    shutil.copytree(village.root, tmp_path / "own")
    return ProjectPaths(tmp_path / "own")


def call(project: ProjectPaths, *words: str) -> Result:
    return CliRunner().invoke(cli, ["--project", str(project.root), "paper", "datastore", *words])


def refusal(project: ProjectPaths, *words: str) -> CogError:
    result = call(project, *words)
    assert isinstance(result.exception, CogError), result.exception
    assert result.stdout == ""
    return result.exception


def test_build_and_info_agree_and_another_model_is_refused(own_village: ProjectPaths) -> None:
    missing = refusal(own_village, "info", "village")
    assert isinstance(missing, IndexNotBuiltError)
    assert "cog paper datastore build village" in str(missing)
    built = json.loads(call(own_village, "build", "village", "--device", "cpu", "--json").stdout)
    assert built["num_entries"] > 100
    assert built["search"]["recall"] == 1.0
    assert json.loads(call(own_village, "info", "village", "--json").stdout) == built
    text = call(own_village, "info", "village").stdout
    assert f"{built['num_entries']:,} of width 16" in text
    assert "flat, recall 1.000 at 10" in text
    weights = own_village.root / "models" / "tiny" / "prefix" / "model.safetensors"
    weights.write_bytes(weights.read_bytes() + b" ")
    changed = refusal(own_village, "info", "village")
    assert isinstance(changed, IndexMismatchError)
    assert "must be one of model" in str(changed)


def test_a_corpus_that_is_not_there_is_refused(own_village: ProjectPaths) -> None:
    assert isinstance(refusal(own_village, "build", "nowhere"), CorpusNotFoundError)
    unprepared = refusal(own_village, "build", "hamlet")
    assert "hamlet" in str(unprepared)
