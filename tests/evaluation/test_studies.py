"""Studies: what is missing is built, plans run once, and what they tell together is logged."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from mlflow import MlflowClient

from cog.baselines.system import ABLATIONS, VARIANTS
from cog.cards import Subset
from cog.cli.main import cli
from cog.errors import CorpusNotFoundError, EvaluationError
from cog.evaluation.metrics.catalogue import METRICS
from cog.evaluation.paper import load_published
from cog.evaluation.session import Plan
from cog.evaluation.studies import (
    make_subsets,
    run_study,
    study_ablations,
    study_domain,
    study_index_size,
)
from cog.params import Params
from cog.paths import ProjectPaths
from cog.pipeline_file import CorpusEntry, add_corpus_entry
from cog.progress import SilentProgress
from cog.registry import load_resolved_card, save_card
from tests.built_project import build_corpus
from tests.evaluation.stopping import stop_at_text
from tests.tiny_project import HAMLET_CARD, write_yaml

FEW = ("--prompts", "2", "--device", "cpu", "--metric", "repetition", "--metric", "copies")
PAPER = ("table", "--setting", "law-mt", "--memory", "village", "--prompts-of", "village")
PAPER += ("--decoding", "greedy", *FEW)


@pytest.fixture
def tracked(own_village: ProjectPaths, empty_runs: Path) -> ProjectPaths:
    """A project whose database has MLflow's tables."""
    shutil.copy(empty_runs, own_village.runs_database)
    return own_village


@pytest.fixture
def nested(tracked: ProjectPaths) -> ProjectPaths:
    """Two nested subsets of `village`, built, beside it."""
    big = {**HAMLET_CARD, "id": "borough", "subset": {"proportion": 0.75, "seed": 0}}
    write_yaml(tracked.card("borough"), big)
    add_corpus_entry(tracked, "borough", CorpusEntry("village"))
    build_corpus(tracked, "hamlet")
    build_corpus(tracked, "borough")
    return tracked


@pytest.fixture
def few(plan: Plan) -> Plan:
    rules = replace(plan.protocol, seeds=(0,), num_prompts=2)
    return replace(plan, groups=("repetition", "copies"), protocol=rules)


def list_runs(paths: ProjectPaths, experiment: str) -> list[Any]:
    client = MlflowClient(tracking_uri=f"sqlite:///{paths.runs_database}")
    found = client.get_experiment_by_name(experiment)
    return [] if found is None else list(client.search_runs([found.experiment_id]))


def call(paths: ProjectPaths, *words: str) -> Result:
    return CliRunner().invoke(cli, ["--project", str(paths.root), "paper", "study", *words])


def call_json(paths: ProjectPaths, *words: str) -> Any:  # noqa: ANN401
    done = call(paths, *words, "--json")
    assert done.exception is None, done.output
    return json.loads(done.stdout)


def test_subsets_are_found_by_their_size_and_made_if_missing(nested: ProjectPaths) -> None:
    assert make_subsets(nested, "village", [0.75, 0.5]) == ["hamlet", "borough"]
    assert make_subsets(nested, "village", [0.9, 0.5]) == ["hamlet", "village-90pct"]
    made = load_resolved_card(nested, "village-90pct")
    assert made.subset == Subset(0.9, 0)
    assert made.source == load_resolved_card(nested, "village").source
    with pytest.raises(EvaluationError, match="above 0 and at most 1; found: 1.5"):
        make_subsets(nested, "village", [1.5])
    with pytest.raises(EvaluationError, match="hamlet extends village; next: pass --corpus vill"):
        make_subsets(nested, "hamlet", [0.5])
    save_card(nested, replace(made, extends=None, subset=None))
    with pytest.raises(EvaluationError, match="another card of this id"):
        make_subsets(nested, "village", [0.9])


def test_index_sizes_share_their_prompts_and_end_in_a_curve(
    nested: ProjectPaths, params: Params, few: Plan
) -> None:
    kind = study_index_size(few, ["hamlet", "borough"])
    study = run_study(nested, params, kind, experiment="sizes", progress=SilentProgress())
    small, big = study.results.values()
    assert (small.corpus, big.corpus) == ("hamlet", "borough")
    assert small.prompts_digest == big.prompts_digest
    assert 0 < small.system.num_index_words < big.system.num_index_words
    assert study.figures["curve.png"].startswith(b"\x89PNG")
    assert len(list_runs(nested, "sizes")) == 2 + 1


def test_stopped_study_goes_on_and_logs_each_evaluation_once(
    nested: ProjectPaths, params: Params, few: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished = stop_at_text(monkeypatch, 5)
    kind = study_domain(few, ["village", "hamlet"])
    words: Any = {"experiment": "matrix", "progress": SilentProgress()}
    with pytest.raises(KeyboardInterrupt):
        run_study(nested, params, kind, **words)
    assert len(list_runs(nested, "matrix")) == 2
    study = run_study(nested, params, kind, **words)
    assert list(study.results) == [
        "village on village",
        "hamlet on village",
        "village on hamlet",
        "hamlet on hamlet",
    ]
    assert [each.prompts for each in study.comparisons] == ["village", "hamlet"]
    assert len(finished) == 4 * 2 + 1
    assert len(list_runs(nested, "matrix")) == 4 + 1
    run_study(nested, params, kind, **words)
    assert len(list_runs(nested, "matrix")) == 4 + 1


def test_studies_run_from_the_command_line(nested: ProjectPaths, tmp_path: Path) -> None:
    curve = tmp_path / "c.png"
    sizes = ("--corpus", "village", "--proportions", "0.5,0.75", "--plot", str(curve))
    content = call_json(nested, "index-size", *sizes, *FEW)
    assert set(content["results"]) == {"hamlet", "borough"}
    assert curve.stat().st_size > 1000
    matrix = tmp_path / "m.svg"
    words = ("domain", "--corpora", "village,hamlet", "--plot", str(matrix))
    done = call(nested, *words, *FEW)  # of neither MAUVE nor likelihood
    assert done.exception is None, done.output
    assert done.stdout.count("hamlet") >= 3
    assert "repetition/" in matrix.read_text()
    bad = call(nested, "domain", "--corpora", "village,hamlet", "--plot", "m.txt")
    assert "must end in .png" in str(bad.exception)
    wrong = call(nested, "index-size", "--corpus", "village", "--proportions", "a")
    assert wrong.exit_code == 2
    one = call(nested, "domain", "--corpora", "village,village")
    assert "two corpora or more" in str(one.exception)


def test_every_ablation_is_evaluated_once_on_the_prompts_of_cog(
    tracked: ProjectPaths, tmp_path: Path
) -> None:
    page, picture = tmp_path / "page.html", tmp_path / "bars.png"
    words = ("ablations", "--corpus", "village", *FEW)
    content = call_json(tracked, *words, "--html", str(page), "--plot", str(picture))
    # the settings are the paper's, with 16 chunks: what is off cannot be switched off
    differing = [*VARIANTS, "cog-tokens", "cog-k1", "cog-k4", "cog-k64", "cog-k256", "cog-k1024"]
    assert list(content["results"]) == ["cog", *differing]
    scores = {
        name: {score["name"]: score["mean"] for score in each["scores"]}
        for name, each in content["results"].items()
    }
    assert scores["cog-tokens"]["copies/tokens"] == 0.0
    assert scores["cog-phrases"]["copies/tokens"] > 0.5  # all but where no room is left
    (comparison,) = content["comparisons"]
    assert {pair["first"] for pair in comparison["pairs"]} == {"cog"}
    assert "cog-phrases" in page.read_text()
    assert picture.read_bytes().startswith(b"\x89PNG")
    runs = list(tracked.corpus("village").evaluations.glob("*/run.json"))
    systems = [json.loads(path.read_text())["system"] for path in runs]
    assert sorted(each["name"] for each in systems) == ["cog"] * 7 + sorted(VARIANTS)
    assert len(list_runs(tracked, "ablations village")) == len(differing) + 1 + 1
    assert "occurrences of one text are choices of their own" in call(tracked, *words).stdout


def test_what_is_no_ablation_is_one_line(tracked: ProjectPaths, few: Plan) -> None:
    with pytest.raises(EvaluationError, match="cog has these settings too: cog-k16"):
        study_ablations(few, ["cog-k16"])
    assert call(tracked, "ablations", "--corpus", "village", "--system", "cog-k5").exit_code == 2
    assert {len(settings) > 0 for settings in ABLATIONS.values()} == {True}


def test_rows_of_the_paper_are_measured_or_gaps(tracked: ProjectPaths) -> None:
    content = call_json(tracked, *PAPER)
    (rows,) = content["tables"]
    by_system = {row["system"]: row for row in rows}
    assert list(by_system) == ["transformer", "transformer-ft", "knn-lm", "retro", "cog"]
    assert {row["decoding"] for row in rows} == {"greedy"}
    for system in ("transformer", "cog"):
        assert 0.0 <= by_system[system]["measured"]["diversity"] <= 100.0
        assert by_system[system]["measured"]["mauve"] is None
    for system, run in (
        ("transformer-ft", "cog train --objective tokens"),
        ("knn-lm", "cog paper datastore build village"),
        ("retro", "cog paper retro train"),
    ):
        assert run in content["gaps"][f"{system} greedy"]
        assert set(by_system[system]["measured"].values()) == {None}
    assert by_system["cog"]["published"] == {"mauve": 21.31, "diversity": 84.32}
    assert "Copied from and searched is village, not law-mt." in content["differences"]
    assert call_json(tracked, *PAPER)["tables"] == content["tables"]
    assert len(list_runs(tracked, "paper law-mt")) == 2
    table = call(tracked, *PAPER)
    assert "gap: retro greedy: the system retro needs an adapter" in table.stdout
    assert "- (23.00)" in table.stdout or "- (23)" in table.stdout
    missing = call(tracked, *PAPER, "--memory", "nowhere")
    assert isinstance(missing.exception, CorpusNotFoundError)
    late = call_json(tracked, *PAPER, "--max-seconds", "0")
    assert len(late["gaps"]) == 5
    assert all("which goes on here" in gap for gap in late["gaps"].values())


def test_published_figures_are_whole() -> None:
    content = load_published()
    assert {rule["score"] for rule in content["columns"].values()} <= set(METRICS)
    for setting in content["settings"].values():
        for table in setting["tables"]:
            for _, system, *figures in table["rows"]:
                assert len(figures) == 2, system
                assert all(len(each) == len(table["columns"]) for each in figures)
    best = content["settings"]["wikitext103"]["tables"][0]["rows"][-1]
    assert best[3][0] == 26.14
