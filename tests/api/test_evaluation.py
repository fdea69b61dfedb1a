"""Scores as tables: what the command line measures, by rows, and what is refused."""

import shutil
import sys
from pathlib import Path

import pytest

import cog
from cog.api.project import Project
from cog.errors import CorpusNotFoundError, EvaluationError
from cog.paths import ProjectPaths
from tests.calling import call_json

WORDS = ("evaluate", "--corpus", "village", "--no-track", "--device", "cpu")


@pytest.fixture
def own_village(
    village: ProjectPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ProjectPaths:
    monkeypatch.setenv("COG_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return ProjectPaths(shutil.copytree(village.root, tmp_path / "own"))


@pytest.fixture
def project(own_village: ProjectPaths) -> Project:
    return cog.open(own_village.root)


def test_scores_are_those_of_the_command_line(project: Project, own_village: ProjectPaths) -> None:
    found = project.evaluate(
        "village", metrics=["repetition"], seeds=[0, 1], num_prompts=3, experiment=None
    )
    words = ("--metric", "repetition", "--seeds", "0,1", "--prompts", "3")
    wanted = call_json(own_village, *WORDS, *words)
    assert list(found["metric"]) == [each["name"] for each in wanted["scores"]]
    assert list(found["mean"]) == [each["mean"] for each in wanted["scores"]]
    assert set(found["protocol"]) == {wanted["digests"]["protocol"]}
    table = project.compare("village", metrics=["diversity"])
    assert list(table["metric"]) == ["repetition/diversity"]
    assert len(project.compare("village", pairs=True)) == 0


def test_without_pandas_rows_come_as_a_list(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.warns(UserWarning, match="pandas is not installed: rows come as a list of dicts"):
        rows = project.evaluate("village", metrics=["copies"], num_prompts=1, experiment=None)
    assert isinstance(rows, list)
    assert {row["corpus"] for row in rows} == {"village"}


def test_what_cannot_be_evaluated_is_refused(project: Project) -> None:
    for settings, message in (
        ({"top_p": 7}, "top_p must be a number above 0 and up to 1; found: 7"),
        ({"protocol": "paper-iclr2023", "phrase_bias": 1.0}, "phrase_bias goes with protocol"),
        ({"system": "oracle"}, "the system must be one of"),
        ({"precision": "float8"}, "precision must be one of"),
        ({"metrics": ["beauty"]}, "scores come in the groups"),
    ):
        with pytest.raises(EvaluationError) as caught:
            project.evaluate("village", experiment=None, **settings)  # type: ignore[arg-type]
        assert message in str(caught.value)
    with pytest.raises(EvaluationError, match="a comparison needs a corpus"):
        project.compare()
    with pytest.raises(EvaluationError, match="must have been evaluated"):
        project.compare("village")
    with pytest.raises(CorpusNotFoundError):
        project.evaluate("town")
