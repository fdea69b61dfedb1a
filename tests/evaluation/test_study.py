import json
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from mlflow import MlflowClient

from cog.cards import Subset
from cog.cli.main import cli
from cog.errors import EvaluationError
from cog.evaluation.session import Plan
from cog.evaluation.study import study_domain, study_index_size
from cog.evaluation.subsets import make_subsets
from cog.index.versions.manifest import load_manifest
from cog.params import Params
from cog.paths import ProjectPaths
from cog.pipeline import Builder
from cog.pipeline_file import CorpusEntry, add_corpus_entry
from cog.progress import SilentProgress
from cog.registry import load_resolved_card, save_card
from tests.built_project import build_corpus
from tests.evaluation.stopping import stop_at_text
from tests.tiny_project import HAMLET_CARD, write_yaml


@pytest.fixture
def nested(own_village: ProjectPaths, empty_runs: Path) -> ProjectPaths:
    """Two nested subsets of `village`, built, beside it."""
    shutil.copy(empty_runs, own_village.runs_database)
    big = {**HAMLET_CARD, "id": "borough", "subset": {"proportion": 0.75, "seed": 0}}
    write_yaml(own_village.card("borough"), big)
    add_corpus_entry(own_village, "borough", CorpusEntry("village"))
    build_corpus(own_village, "hamlet")
    build_corpus(own_village, "borough")
    return own_village


@pytest.fixture
def few(plan: Plan) -> Plan:
    return replace(
        plan,
        groups=("repetition", "copies"),
        protocol=replace(plan.protocol, seeds=(0,), num_prompts=2),
    )


def count_runs(paths: ProjectPaths, experiment: str) -> int:
    client = MlflowClient(tracking_uri=f"sqlite:///{paths.runs_database}")
    found = client.get_experiment_by_name(experiment)
    return 0 if found is None else len(client.search_runs([found.experiment_id]))


def quiet(paths: ProjectPaths, params: Params) -> Builder:
    """Builds what is missing and shows nothing."""
    return Builder(
        paths, params, lambda *_words, **_named: nullcontext(SilentProgress()), device="cpu"
    )


def test_what_a_study_prepares_is_what_the_command_prepares(
    nested: ProjectPaths, params: Params
) -> None:
    documents = nested.corpus("hamlet").documents
    assert (
        CliRunner()
        .invoke(cli, ["--project", str(nested.root), "corpus", "prepare", "hamlet"])
        .exit_code
        == 0
    )
    wanted = documents.read_bytes()
    documents.unlink()
    nested.corpus("hamlet").manifest.unlink()
    assert quiet(nested, params).build_missing(["hamlet"]) == ["hamlet"]
    assert documents.read_bytes() == wanted  # the warnings about text and model among it


def test_subsets_are_found_by_their_size_and_made_if_missing(nested: ProjectPaths) -> None:
    assert make_subsets(nested, "village", [0.75, 0.5]) == ["hamlet", "borough"]
    assert make_subsets(nested, "village", [0.9, 0.5]) == ["hamlet", "village-90pct"]
    made = load_resolved_card(nested, "village-90pct")
    assert made.subset == Subset(0.9, 0)
    assert made.source == load_resolved_card(nested, "village").source
    with pytest.raises(EvaluationError, match="above 0 and at most 1; found: 1.5"):
        make_subsets(nested, "village", [1.5])
    with pytest.raises(
        EvaluationError, match="hamlet extends village; next: pass --corpus village"
    ):
        make_subsets(nested, "hamlet", [0.5])
    save_card(nested, replace(made, extends=None, subset=None))
    with pytest.raises(EvaluationError, match="another card of this id"):
        make_subsets(nested, "village", [0.9])


def test_missing_indexes_are_built_once_from_shared_raw_files(
    own_village: ProjectPaths, params: Params
) -> None:
    ids = make_subsets(own_village, "village", [0.5, 0.9])
    assert quiet(own_village, params).build_missing(ids) == ["hamlet", "village-90pct"]
    sizes = [load_manifest(own_village.corpus(each)).num_words for each in ids]
    assert 0 < sizes[0] <= sizes[1]
    raw = [own_village.corpus(each).raw / "village.jsonl" for each in ("village", *ids)]
    assert len({path.stat().st_ino for path in raw}) == 1
    assert quiet(own_village, params).build_missing(ids) == []
    own_village.corpus("hamlet").manifest.unlink()  # as a stop before the index leaves it
    own_village.corpus("hamlet").raw.rename(own_village.root / "elsewhere")
    own_village.corpus("hamlet").raw.mkdir()  # prepared: the raw files are not looked at again
    assert quiet(own_village, params).build_missing(ids) == ["hamlet"]


def test_index_sizes_share_their_prompts_and_end_in_a_curve(
    nested: ProjectPaths, params: Params, few: Plan
) -> None:
    study = study_index_size(
        nested,
        params,
        few,
        proportions=[0.5, 0.75],
        experiment="sizes",
        builder=quiet(nested, params),
    )
    small, big = study.results
    assert (small.corpus, big.corpus) == ("hamlet", "borough")
    assert small.prompt_ids == big.prompt_ids
    assert small.prompt_corpus == big.prompt_corpus == "borough"
    assert 0 < small.num_index_words < big.num_index_words
    assert study.run is not None
    client = MlflowClient(tracking_uri=study.run.uri)
    place = client.get_run(study.run.run_id).info.artifact_uri
    assert (nested.root / place / "figures" / "curve.png").read_bytes()[:4] == b"\x89PNG"
    assert count_runs(nested, "sizes") == 2 * 2 + 1


def test_stopped_study_goes_on_and_logs_each_evaluation_once(
    nested: ProjectPaths, params: Params, few: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished = stop_at_text(monkeypatch, 2 * few.protocol.num_prompts + 1)
    words: Any = {"corpus_ids": ["village", "hamlet"], "experiment": "matrix"}
    with pytest.raises(KeyboardInterrupt):
        study_domain(nested, params, few, builder=quiet(nested, params), **words)
    assert count_runs(nested, "matrix") == 2 * 2
    study = study_domain(nested, params, few, builder=quiet(nested, params), **words)
    pairs = [(result.corpus, result.prompt_corpus) for result in study.results]
    assert pairs == [
        ("village", "village"),
        ("hamlet", "village"),
        ("village", "hamlet"),
        ("hamlet", "hamlet"),
    ]
    assert len(finished) == sum(len(each.prompt_ids) for each in study.results) + 1
    assert count_runs(nested, "matrix") == 4 * 2


def test_study_of_one_corpus_is_one_line(
    own_village: ProjectPaths, params: Params, few: Plan
) -> None:
    with pytest.raises(EvaluationError, match="two corpora or more; found: 1"):
        study_domain(
            own_village,
            params,
            few,
            corpus_ids=["village", "village"],
            experiment="matrix",
            builder=quiet(nested, params),
        )


def test_studies_run_from_the_command_line(nested: ProjectPaths, tmp_path: Path) -> None:
    common = ["--prompts", "2", "--metric", "repetition", "--device", "cpu"]
    sizes = ["--corpus", "village", "--proportions", "0.5,0.75", "--plot", str(tmp_path / "c.png")]
    start = ["--project", str(nested.root), "study"]
    done = CliRunner().invoke(cli, [*start, "index-size", *sizes, *common, "--json"])
    assert done.exception is None, done.output
    rows = json.loads(done.stdout)["rows"]
    assert {row["corpus"] for row in rows} == {"hamlet", "borough"}
    assert (tmp_path / "c.png").stat().st_size > 1000
    done = CliRunner().invoke(cli, [*start, "domain", "--corpora", "village,hamlet", *common])
    assert done.exception is None, done.output
    assert done.stdout.count("hamlet") >= 3
    wrong = CliRunner().invoke(
        cli, [*start, "index-size", "--corpus", "village", "--proportions", "a"]
    )
    assert wrong.exit_code == 2
