"""``cog compare`` on a project of two indexes, with evaluations made by hand in the real store."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from cog.cli.main import cli
from cog.errors import CogError, EvaluationError, ProtocolError
from cog.evaluation.records import EvaluationResult
from cog.evaluation.results import save_result
from cog.index.versions.manifest import load_manifest
from cog.paths import ProjectPaths
from tests.built_project import build_corpus
from tests.evaluation.making import metric, protocol, result, whole_metric

RANDOM = np.random.default_rng(0)
REP = RANDOM.uniform(5, 15, size=60)
NOISE = RANDOM.uniform(-0.5, 0.5, size=60)


@pytest.fixture(scope="module")
def built(village: ProjectPaths, tmp_path_factory: pytest.TempPathFactory) -> ProjectPaths:
    paths = ProjectPaths(tmp_path_factory.mktemp("compare") / "project")
    shutil.copytree(village.root, paths.root)
    build_corpus(paths, "hamlet")
    return paths


@pytest.fixture
def project(built: ProjectPaths, tmp_path: Path) -> ProjectPaths:
    shutil.copytree(built.root, tmp_path / "project")
    return ProjectPaths(tmp_path / "project")


def make(paths: ProjectPaths, corpus: str, mauve: float, *, shift: float = 0.0) -> EvaluationResult:
    manifest = load_manifest(paths.corpus(corpus))
    scores = [
        whole_metric("quality/mauve", mauve, 0.03),
        metric(
            "repetition/rep-2", (REP + shift * (1 + NOISE)).tolist(), higher=False, note="few texts"
        ),
    ]
    return result(
        corpus, scores, index=manifest.digest, num_index_words=manifest.num_words, model="m" * 64
    )


@pytest.fixture
def evaluated(project: ProjectPaths) -> ProjectPaths:
    save_result(project.corpus("village"), make(project, "village", 0.9))
    save_result(project.corpus("hamlet"), make(project, "hamlet", 0.8, shift=1.0))
    return project


def run(paths: ProjectPaths, *words: str) -> tuple[str, str]:
    done = CliRunner().invoke(
        cli, ["--project", str(paths.root), "compare", *words], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    return done.stdout, done.stderr


def fail(paths: ProjectPaths, *words: str) -> CogError:
    done = CliRunner().invoke(cli, ["--project", str(paths.root), "compare", *words])
    assert isinstance(done.exception, CogError), done.output
    return done.exception


FOREIGN = ("--prompts-of", "village")


def test_table_shows_intervals_and_marks_what_is_better(evaluated: ProjectPaths) -> None:
    table, talk = run(evaluated, "village", "hamlet", *FOREIGN)
    lines = {line.split()[0]: line for line in table.splitlines() if line.strip()}
    assert "prompts: village" in table
    assert "0.9* [0.87, 0.93] n=200" in table
    assert "0.8 [0.77, 0.83] n=200" in table
    assert "paired bootstrap" in lines["repetition/rep-2"]
    assert lines["repetition/rep-2"].rstrip().endswith("village")
    assert "few texts" in talk


def test_json_is_one_object(evaluated: ProjectPaths) -> None:
    content = json.loads(run(evaluated, "village", "hamlet", *FOREIGN, "--json")[0])
    assert content["protocol"] == protocol().digest
    assert [(row["corpus"], row["metric"]) for row in content["rows"]] == [
        ("village", "quality/mauve"),
        ("hamlet", "quality/mauve"),
        ("village", "repetition/rep-2"),
        ("hamlet", "repetition/rep-2"),
    ]
    assert content["pairs"][1]["difference"]["win_rate"] == 1.0  # village repeats less
    only = json.loads(
        run(evaluated, "village", "hamlet", *FOREIGN, "--metric", "mauve", "--json")[0]
    )
    assert {row["metric"] for row in only["rows"]} == {"quality/mauve"}


def test_plot_and_page_are_written(evaluated: ProjectPaths, tmp_path: Path) -> None:
    plot, page = tmp_path / "out.png", tmp_path / "out.html"
    words = ("village", "hamlet", *FOREIGN, "--plot", str(plot), "--html", str(page))
    run(evaluated, *words, "--index-size", "--num-prompts", "3")
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert page.read_text(encoding="utf-8").count("<section") == 3


def test_index_size_orders_by_words(evaluated: ProjectPaths) -> None:
    words = (*FOREIGN, "--metric", "mauve", "--json")
    plain = json.loads(run(evaluated, "village", "hamlet", *words)[0])
    by_size = json.loads(run(evaluated, "village", "hamlet", *words, "--index-size")[0])
    assert [row["corpus"] for row in plain["rows"]] == ["village", "hamlet"]
    assert [row["corpus"] for row in by_size["rows"]] == ["hamlet", "village"]


def test_bad_plot_name_is_refused_first(project: ProjectPaths) -> None:
    assert "must end in .png" in str(fail(project, "village", "--plot", "out.txt"))


def test_corpus_without_an_evaluation_is_refused(project: ProjectPaths) -> None:
    error = fail(project, "village")
    assert isinstance(error, EvaluationError)
    assert error.run == "cog evaluate --corpus village"


def test_prompts_that_were_not_continued_are_refused(evaluated: ProjectPaths) -> None:
    error = fail(evaluated, "hamlet")
    assert "on the prompts of hamlet" in error.wanted
    assert "cog on village under default" in error.found


def test_index_that_was_rebuilt_since_is_refused(project: ProjectPaths) -> None:
    stale = replace(make(project, "village", 0.9), index="0" * 64)
    save_result(project.corpus("village"), stale)
    error = fail(project, "village")
    assert "000000000000, which was built again since" in error.found
    fresh = make(project, "village", 0.7)
    save_result(project.corpus("village"), fresh)
    rows = json.loads(run(project, "village", "--metric", "mauve", "--json")[0])["rows"]
    assert [row["mean"] for row in rows] == [0.7]


def test_newest_common_protocol_is_taken(evaluated: ProjectPaths) -> None:
    newer = replace(
        make(evaluated, "village", 0.5),
        protocol=protocol(top_p=0.5),
        created_at="2026-02-02T00:00:00+00:00",
    )
    save_result(evaluated.corpus("village"), newer)
    rows = json.loads(run(evaluated, "village", "hamlet", *FOREIGN, "--json")[0])["rows"]
    assert rows[0]["mean"] == 0.9
    alone = json.loads(run(evaluated, "village", "--json")[0])["rows"]
    assert alone[0]["mean"] == 0.5
    digest = protocol().digest[:10]
    chosen = json.loads(run(evaluated, "village", "--protocol", digest, "--json")[0])["rows"]
    assert chosen[0]["mean"] == 0.9


def test_protocols_that_differ_are_refused_by_field(project: ProjectPaths) -> None:
    save_result(project.corpus("village"), make(project, "village", 0.9))
    other = replace(make(project, "hamlet", 0.8), protocol=protocol(mauve_scale=5.0))
    save_result(project.corpus("hamlet"), other)
    error = fail(project, "village", "hamlet", *FOREIGN)
    assert isinstance(error, ProtocolError)
    assert error.about == "mauve_scale"
    assert "2.0 for village" in error.found


def test_two_decodings_stand_side_by_side(project: ProjectPaths) -> None:
    save_result(project.corpus("village"), make(project, "village", 0.9))
    greedy = make(project, "village", 0.4, shift=1.0)
    save_result(
        project.corpus("village"), replace(greedy, protocol=protocol(method="greedy", top_p=0.95))
    )
    words = ("village", "--decoding", "greedy", "--decoding", "nucleus")
    content = json.loads(run(project, *words, "--json")[0])
    assert content["across"] == ["method"]
    assert "method" not in content["protocol_fields"]
    assert content["protocol"] == protocol().digest_without(["method"]) != protocol().digest
    assert [(row["differs"], row["mean"]) for row in content["rows"][:2]] == [
        ({"method": "greedy"}, 0.4),
        ({"method": "nucleus"}, 0.9),
    ]
    table = run(project, *words)[0]
    assert "village greedy" in table
    assert "compared: method" in table
    one = json.loads(run(project, "village", "--decoding", "greedy", "--json")[0])
    assert one["rows"][0]["mean"] == 0.4
    assert one["protocol_fields"]["method"] == "greedy"


def test_two_decodings_that_also_differ_otherwise_are_refused(project: ProjectPaths) -> None:
    save_result(project.corpus("village"), make(project, "village", 0.9))
    words = ("village", "--decoding", "greedy", "--decoding", "nucleus")
    error = fail(project, *words)
    assert error.run == "cog evaluate --corpus village --decoding greedy"
    greedy = make(project, "village", 0.4)
    other = replace(greedy, protocol=protocol(method="greedy", mauve_scale=5.0))
    save_result(project.corpus("village"), other)
    error = fail(project, *words)
    assert isinstance(error, ProtocolError)
    assert error.about == "mauve_scale"


def test_few_prompts_are_flagged(project: ProjectPaths) -> None:
    for corpus, shift in (("village", 0.0), ("hamlet", 1.0)):
        scores = [metric("repetition/rep-2", (REP[:20] + shift * NOISE[:20]).tolist())]
        made = replace(make(project, corpus, 0.5), metrics=tuple(scores))
        save_result(project.corpus(corpus), made)
    words = ("village", "hamlet", *FOREIGN)
    assert (
        "20 prompts: below 30 a bootstrap finds differences too easily" in run(project, *words)[1]
    )
