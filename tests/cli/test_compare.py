"""``cog compare`` on a project of two indexes, with evaluations made by hand in the real store."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cog.baselines.system import take_used
from cog.errors import EvaluationError, ProtocolError
from cog.evaluation.records import EvaluationResult
from cog.index.versions.manifest import load_manifest
from cog.model.fingerprint import fingerprint_model
from cog.paths import ProjectPaths
from tests.built_project import build_corpus
from tests.calling import call, refusal
from tests.evaluation.making import mauve, protocol, rep, result, save, system

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


def make(paths: ProjectPaths, corpus: str, alike: int, *, shift: float = 0.0) -> EvaluationResult:
    manifest = load_manifest(paths.corpus(corpus))
    scores = [
        mauve(alike, 60),
        rep((REP + shift * (1 + NOISE)).tolist(), REP.tolist(), note="few texts"),
    ]
    run = system(
        corpus,
        index=manifest.digest,
        num_index_words=manifest.num_words,
        model=fingerprint_model(paths.root / "models" / "tiny"),
    )
    return result(corpus, scores, system=run)


@pytest.fixture
def evaluated(project: ProjectPaths) -> ProjectPaths:
    save(project, make(project, "village", 60))
    save(project, make(project, "hamlet", 40, shift=1.0))
    return project


def run(paths: ProjectPaths, *words: str) -> tuple[str, str]:
    done = call(paths, "compare", *words)
    assert done.exit_code == 0, done.output
    return done.stdout, done.stderr


FOREIGN = ("--prompts-of", "village")


def test_table_shows_intervals_and_marks_what_is_better(evaluated: ProjectPaths) -> None:
    table, talk = run(evaluated, "village", "hamlet", *FOREIGN)
    lines = {line.split()[0]: line for line in table.splitlines() if line.strip()}
    assert "prompts: village" in table
    assert re.search(r"quality/mauve +1\* .*n=60", table)
    assert "real text" in table
    assert "paired by document" in lines["repetition/rep-2"]
    assert lines["repetition/rep-2"].rstrip().endswith("village")  # it is the reference itself
    assert "few texts" in talk


def test_json_is_one_object(evaluated: ProjectPaths) -> None:
    content = json.loads(run(evaluated, "village", "hamlet", *FOREIGN, "--json")[0])
    assert content["protocol"]["digest"] == protocol().digest
    assert [(row["system"]["corpus"], row["metric"]) for row in content["rows"]] == [
        ("village", "quality/mauve"),
        ("hamlet", "quality/mauve"),
        ("village", "repetition/rep-2"),
        ("hamlet", "repetition/rep-2"),
    ]
    assert content["pairs"][1]["better"] == "village"
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
    assert [row["system"]["corpus"] for row in plain["rows"]] == ["village", "hamlet"]
    assert [row["system"]["corpus"] for row in by_size["rows"]] == ["hamlet", "village"]


def test_bad_plot_name_is_refused_first(project: ProjectPaths) -> None:
    assert "must end in .png" in str(refusal(project, "compare", "village", "--plot", "out.txt"))


def test_corpus_without_an_evaluation_is_refused(project: ProjectPaths) -> None:
    error = refusal(project, "compare", "village")
    assert isinstance(error, EvaluationError)
    assert error.run == "cog evaluate --corpus village"


def test_prompts_that_were_not_continued_are_refused(evaluated: ProjectPaths) -> None:
    error = refusal(evaluated, "compare", "hamlet")
    assert "on the prompts of hamlet" in error.wanted
    assert "cog on village under default" in error.found


def test_index_that_was_rebuilt_since_is_refused(project: ProjectPaths) -> None:
    made = make(project, "village", 60)
    save(project, replace(made, system=replace(made.system, index="0" * 64)))
    error = refusal(project, "compare", "village")
    assert "000000000000, which was built again since" in error.found
    old = replace(made, system=replace(made.system, decoder=0))
    save(project, old)
    assert "must be of decoder" in str(refusal(project, "compare", "village"))
    save(project, made)
    rows = json.loads(run(project, "village", "--metric", "mauve", "--json")[0])["rows"]
    assert [row["system"]["index"] for row in rows] == [made.system.index]


def test_newest_common_protocol_is_taken(evaluated: ProjectPaths) -> None:
    newer = replace(
        make(evaluated, "village", 20),
        protocol=protocol(num_prompts=5),
        created_at="2026-02-02T00:00:00+00:00",
    )
    save(evaluated, newer)
    rows = json.loads(run(evaluated, "village", "hamlet", *FOREIGN, "--json")[0])["rows"]
    assert rows[0]["mean"] == 1.0
    alone = json.loads(run(evaluated, "village", "--json")[0])
    assert alone["protocol"]["num_prompts"] == 5
    digest = protocol().digest[:10]
    chosen = json.loads(run(evaluated, "village", "--protocol", digest, "--json")[0])["rows"]
    assert chosen[0]["mean"] == 1.0


def test_usual_settings_come_first_and_named_ones_are_found(project: ProjectPaths) -> None:
    usual = make(project, "village", 60)
    save(project, usual)
    for number, changes in enumerate(({"phrase_bias": 9.0}, {"top_k_documents": 0})):
        decoding = take_used("cog", replace(usual.system.decoding, **changes))
        other = replace(usual.system, decoding=decoding)
        save(project, replace(usual, system=other, created_at=f"2027-01-0{number + 1}"))
    words = ("village", "--system", "cog", "--system", "cog-tokens", "--metric", "mauve")
    content = json.loads(run(project, *words, "--json")[0])
    settings = [row["system"]["settings"] for row in content["rows"]]
    assert [each["top_k_documents"] for each in settings] == [16, 0]
    assert settings[0]["phrase_bias"] == 0.0
    assert "village top_k_documents=0" in run(project, *words)[0]


def test_nothing_is_compared_with_itself(project: ProjectPaths) -> None:
    usual = make(project, "village", 60)
    tokens = replace(
        usual.system,
        decoding=take_used("cog", replace(usual.system.decoding, top_k_documents=0)),
    )
    save(project, replace(usual, system=tokens, protocol=protocol(num_prompts=5)))
    sides = ("village", "--system", "cog", "--system", "cog-tokens")
    assert "must have been evaluated with cog " in str(refusal(project, "compare", *sides))
    save(project, usual)  # under the usual settings, but of other prompts
    error = refusal(project, "compare", *sides)
    assert isinstance(error, ProtocolError)
    assert error.about == "num_prompts"


def test_protocols_that_differ_are_refused_by_field(project: ProjectPaths) -> None:
    save(project, make(project, "village", 60))
    other = replace(make(project, "hamlet", 40), protocol=protocol(mauve_scale=5.0))
    save(project, other)
    error = refusal(project, "compare", "village", "hamlet", *FOREIGN)
    assert isinstance(error, ProtocolError)
    assert error.about == "mauve_scale"
    assert "2.0 for village" in error.found


def test_two_decodings_stand_side_by_side(project: ProjectPaths) -> None:
    made = make(project, "village", 60)
    save(project, made)
    words = ("village", "--decoding", "greedy", "--decoding", "nucleus")
    assert (
        refusal(project, "compare", *words).run == "cog evaluate --corpus village --decoding greedy"
    )
    greedy = take_used("cog", replace(made.system.decoding, method="greedy"))
    save(project, replace(made, system=replace(made.system, decoding=greedy)))
    content = json.loads(run(project, *words, "--json")[0])
    methods = [row["system"]["settings"]["method"] for row in content["rows"]]
    assert methods == ["greedy", "nucleus"] * 2
    assert "method=greedy" in run(project, *words)[0]


def test_devices_are_never_mixed(evaluated: ProjectPaths) -> None:
    made = make(evaluated, "hamlet", 40)
    save(evaluated, replace(made, system=replace(made.system, device="cuda"), created_at="2027"))
    error = refusal(evaluated, "compare", "village", "hamlet", *FOREIGN)
    assert error.about == "device"
    assert "cpu for village, cuda for hamlet" in error.found
