"""``cog study paper``: rows that run are measured, rows that cannot are gaps with reasons."""

import json
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from mlflow import MlflowClient

from cog.cli.main import cli
from cog.errors import CorpusNotFoundError
from cog.evaluation.paper import SETTINGS
from cog.paths import ProjectPaths
from tests.evaluation.stopping import stop_at_text

WORDS = ("--memory", "village", "--prompts-of", "village", "--device", "cpu", "--json")
WORDS += ("--metric", "repetition", "--metric", "copies", "--decoding", "greedy")


@pytest.fixture(autouse=True)
def made_tables(own_village: ProjectPaths, empty_runs: Path) -> None:
    """MLflow's tables, which take seconds to make."""
    shutil.copy(empty_runs, own_village.runs_database)


def test_rows_are_measured_or_gaps_and_are_not_measured_twice(own_village: ProjectPaths) -> None:
    words = ["--project", str(own_village.root), "study", "paper", "--setting", "law-mt"]
    first = CliRunner().invoke(cli, [*words, *WORDS])
    assert first.exception is None, first.exception
    content = json.loads(first.stdout)
    rows = {row["system"]: row for row in content["rows"]}
    assert list(rows) == ["transformer", "transformer-ft", "knn-lm", "retro", "cog"]
    assert {row["decoding"] for row in content["rows"]} == {"greedy"}
    for system in ("transformer", "cog"):
        assert rows[system]["gap"] == ""
        assert 0.0 <= rows[system]["measured"]["diversity"] <= 100.0
        assert rows[system]["measured"]["mauve"] is None
    for system, run in (
        ("transformer-ft", "cog train --objective tokens"),
        ("knn-lm", "cog datastore build village"),
        ("retro", "cog retro train"),
    ):
        assert run in rows[system]["gap"]
        assert set(rows[system]["measured"].values()) == {None}
    assert rows["cog"]["published"] == {"mauve": 21.31, "diversity": 84.32}
    assert len(rows["cog"]["phrase_lengths"]) == 6
    assert rows["transformer"]["phrase_lengths"] is None
    assert "Copied from and searched is village, not law-mt." in content["differences"]
    again = CliRunner().invoke(cli, [*words, *WORDS])
    assert json.loads(again.stdout)["rows"] == content["rows"]
    table = CliRunner().invoke(cli, [*words, *(word for word in WORDS if word != "--json")])
    assert "gap: RETRO, greedy: the system retro needs an adapter" in table.stdout
    missing = CliRunner().invoke(cli, [*words, "--memory", "nowhere"])
    assert isinstance(missing.exception, CorpusNotFoundError)


def test_tables_have_the_form_of_the_paper_beside_its_figures(own_village: ProjectPaths) -> None:
    words = ["--project", str(own_village.root), "study", "paper", "--setting", "wikitext103"]
    words += ["--memory", "village", "--prompts-of", "village", "--device", "cpu", "--seeds", "0"]
    words += ["--metric", "repetition", "--metric", "copies", "--metric", "perplexity"]
    done = CliRunner().invoke(cli, words)
    assert done.exception is None, done.output
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in done.stdout.splitlines()]
    rows = [line for line in lines if line and line[0]]
    scores = [row for row in rows if len(row) == 8]
    assert [tuple(row[:2]) for row in scores] == [
        (label, decoding)
        for label in ("Transformer", "kNN-LM", "RETRO", "CoG")
        for decoding in ("greedy", "nucleus")
    ]
    assert re.fullmatch(r"[\d.]+ \(43\.56\)", scores[0][3])  # Rep-2 of the first row
    assert scores[2][3] == "- (43.79)"
    assert scores[-1][2] == "- (26.14)"  # MAUVE needs more texts
    lengths = [row for row in rows if len(row) == 7]
    assert [row[0] for row in lengths] == ["greedy", "nucleus"]
    assert re.fullmatch(r"0\.\d{3} \(0\.583\)", lengths[0][1])
    assert re.fullmatch(r"0\.\d{3} \(0\.028\)", lengths[1][6])
    perplexities = {row[0]: row[1:] for row in rows if len(row) == 3}
    assert list(perplexities) == ["Transformer", "kNN-LM", "RETRO", "CoG", "what really follows"]
    assert re.fullmatch(r"[\d.]+ \(37\.11\)", perplexities["Transformer"][1])
    assert perplexities["RETRO"] == ["- (3.27)", "- (36.40)"]
    assert re.fullmatch(r"[\d.]+ \(18\.64\)", perplexities["what really follows"][0])
    gaps = [line for line in done.stdout.splitlines() if line.startswith("gap: ")]
    assert len(gaps) == 4
    assert all("; next: cog " in gap for gap in gaps)
    assert "- Nucleus rows are means of 1 seed." in done.stdout


def test_a_killed_study_goes_on(own_village: ProjectPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    finished = stop_at_text(monkeypatch, 2)
    params = own_village.params.read_text().replace("batch_size: 2", "batch_size: 1")
    own_village.params.write_text(params)
    words = ["--project", str(own_village.root), "study", "paper", "--setting", "law-mt", *WORDS]
    stopped = CliRunner().invoke(cli, words)
    assert stopped.exit_code != 0
    first = CliRunner().invoke(cli, words)
    assert first.exception is None, first.output
    num_prompts = json.loads(first.stdout)["rows"][-1]["num_prompts"]
    assert len(finished) == num_prompts + 1  # one was broken off
    again = CliRunner().invoke(cli, words)
    assert json.loads(again.stdout) == json.loads(first.stdout)
    assert len(finished) == num_prompts + 1
    client = MlflowClient(tracking_uri=f"sqlite:///{own_village.runs_database}")
    experiment = client.get_experiment_by_name("paper law-mt")
    assert experiment is not None
    logged = client.search_runs([experiment.experiment_id])
    assert len(logged) == 4  # two rows, each once, with a seed each


def test_rows_that_there_is_no_time_for_are_gaps(own_village: ProjectPaths) -> None:
    words = ["--project", str(own_village.root), "study", "paper", "--setting", "law-mt", *WORDS]
    done = CliRunner().invoke(cli, [*words, "--max-seconds", "0"])
    rows = json.loads(done.stdout)["rows"]
    assert all("next: the same command again, which goes on here" in row["gap"] for row in rows)
    assert not list(own_village.corpus("village").evaluations.glob("*.json"))


def test_tables_hold_every_system_with_both_decodings() -> None:
    for setting in SETTINGS.values():
        assert len(setting.rows) == 2 * len({row.system for row in setting.rows})
        assert all(set(row.published) == set(setting.columns) for row in setting.rows)
    assert SETTINGS["wikitext103"].rows[-1].published["mauve"] == 26.14
