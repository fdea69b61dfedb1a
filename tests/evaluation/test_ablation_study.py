"""``cog study ablations``: every system on the same prompts, each with texts of its own."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from mlflow import MlflowClient

from cog.baselines.ablations.catalogue import ABLATIONS
from cog.cli.main import cli
from cog.errors import EvaluationError
from cog.evaluation.html import write_continuation
from cog.evaluation.records import EvaluatedText
from cog.evaluation.runner import evaluate
from cog.evaluation.session import Plan
from cog.params import load_params
from cog.paths import ProjectPaths
from cog.progress import SilentProgress
from cog.records import PROMPT, Segment
from tests.evaluation.making import text
from tests.evaluation.stopping import stop_at_text

WORDS = ("study", "ablations", "--corpus", "village", "--device", "cpu", "--prompts", "2")
WORDS += ("--metric", "repetition", "--metric", "copies", "--metric", "reference")


@pytest.fixture
def studied(own_village: ProjectPaths, empty_runs: Path) -> ProjectPaths:
    shutil.copy(empty_runs, own_village.runs_database)
    return own_village


def run(paths: ProjectPaths, *words: str) -> Result:
    return CliRunner().invoke(cli, ["--project", str(paths.root), *words])


def test_every_ablation_is_evaluated_once_on_the_prompts_of_cog(studied: ProjectPaths) -> None:
    page, picture = studied.root / "page.html", studied.root / "bars.png"
    done = run(studied, *WORDS, "--json", "--html", str(page), "--plot", str(picture))
    assert done.exception is None, done.output
    content = json.loads(done.stdout)
    rows = {row["system"]: row for row in content["rows"]}
    # the protocol has the paper's settings and retrieves 16 chunks: what is off cannot be switched
    # off
    decoding = load_params(studied.params).generate.decoding
    differing = [
        name
        for name, ablation in ABLATIONS.items()
        if not ablation.settings or replace(decoding, **ablation.settings) != decoding
    ]
    assert {"cog-k16", "cog-no-spans", "cog-unverified"}.isdisjoint(differing)
    assert list(rows) == ["cog", *differing]
    assert content["num_prompts"] == 2
    copied = {name: row["scores"]["copies/tokens"]["mean"] for name, row in rows.items()}
    assert copied["cog-tokens"] == 0.0
    assert copied["cog-phrases"] > 0.5  # all but where no room is left
    for name, row in rows.items():
        has_reference = name == "cog" or ABLATIONS[name].scores_references
        assert ("perplexity/reference" in row["scores"]) == has_reference
    likelihoods = rows["cog-tokens"]["scores"]
    assert likelihoods["perplexity/reference"] == likelihoods["perplexity/reference-tokens"]
    assert set(rows["cog-k1"]["cog_less_this"]) >= {"repetition/diversity", "copies/tokens"}
    assert "cog-prompt-phrases" in page.read_text()
    assert picture.read_bytes().startswith(b"\x89PNG")
    folders = list((studied.corpus("village").evaluations).glob("*/run.json"))
    systems = [json.loads(path.read_text())["system"] for path in folders]
    assert sorted(systems) == sorted(rows)  # texts of one are never taken for another's
    client = MlflowClient(tracking_uri=f"sqlite:///{studied.runs_database}")
    experiment = client.get_experiment_by_name("ablations village")
    assert experiment is not None
    logged = client.search_runs([experiment.experiment_id])
    assert len(logged) == 2 * len(rows) + 1  # each with its seed, and the picture
    table = run(studied, *WORDS)
    assert "the prompt's own phrases are candidates too" in table.stdout


def test_a_stopped_study_goes_on(studied: ProjectPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    finished = stop_at_text(monkeypatch, 3)
    some = (*WORDS, "--system", "cog-k1", "--system", "cog-tokens", "--json")
    assert run(studied, *some).exit_code != 0
    done = run(studied, *some)
    assert done.exception is None, done.output
    assert [row["system"] for row in json.loads(done.stdout)["rows"]] == [
        "cog",
        "cog-k1",
        "cog-tokens",
    ]
    num_finished = len(finished)
    again = run(studied, *some)
    assert json.loads(again.stdout) == json.loads(done.stdout)
    assert len(finished) == num_finished  # nothing is written twice


def test_what_cannot_be_studied_is_one_line(studied: ProjectPaths) -> None:
    params = studied.params.read_text().replace("top_k_documents: 16", "top_k_documents: 4")
    studied.params.write_text(params)
    done = run(studied, *WORDS, "--system", "cog-k4")
    assert isinstance(done.exception, EvaluationError)
    assert "cog has these settings too: cog-k4" in str(done.exception)
    assert run(studied, *WORDS, "--system", "cog-k5").exit_code == 2
    assert run(studied, "study", "ablations").exit_code == 2


def test_an_ablation_has_no_scores_of_references_that_are_those_of_cog(
    own_village: ProjectPaths, plan: Plan
) -> None:
    params = load_params(own_village.params)
    wish = replace(plan, system="cog-unsummed", groups=("reference",))
    with pytest.raises(EvaluationError, match="cog-unsummed scores references as cog does"):
        evaluate(own_village, params, wish, SilentProgress())


def test_the_page_tells_copies_of_the_prompt() -> None:
    made = text("p0", corpus="village")
    own = Segment(" <mill>", PROMPT, 0.5, char_start=3, char_end=10)
    generation = replace(made.generation, segments=(*made.generation.segments, own))
    page = write_continuation(EvaluatedText("p0", "", generation))
    assert "copied from the prompt, characters 3" in page
    assert "&lt;mill&gt;" in page
    assert page.count("<li>") == 2  # it is no source
