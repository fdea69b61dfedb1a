"""``cog paper study blind``: out to graders, and back."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cog.cli.study_blind import command
from cog.errors import CogError
from cog.evaluation.choose import load_results
from cog.index.versions.manifest import load_manifest
from cog.model.fingerprint import fingerprint_model
from cog.paths import ProjectPaths
from tests.calling import call_json
from tests.evaluation.making import rep, result, save, system


@pytest.fixture
def evaluated(village: ProjectPaths, tmp_path: Path) -> ProjectPaths:
    shutil.copytree(village.root, tmp_path / "project")
    paths = ProjectPaths(tmp_path / "project")
    for name in ("cog", "transformer"):
        save_texts(paths, name, 12)
    return paths


def save_texts(paths: ProjectPaths, name: str, num_texts: int, **changes: Any) -> None:  # noqa: ANN401
    index = load_manifest(paths.corpus("village")).digest
    model = fingerprint_model(paths.root / "models" / "tiny")
    about = {"index": "" if name == "transformer" else index, "model": model}
    ran = system("village", name=name, **about, **changes)
    save(paths, result("village", [rep([1.0] * num_texts)], system=ran))


def run(paths: ProjectPaths, *words: str) -> Result:
    done = CliRunner().invoke(command, list(words), obj=paths.root)
    if done.exception and isinstance(done.exception, CogError):
        return done
    assert done.exit_code == 0, done.output
    return done


SYSTEMS = ("--systems", "village:cog", "village:transformer", "--prompts", "10")


def test_sheets_go_out_and_a_verdict_comes_back(evaluated: ProjectPaths, tmp_path: Path) -> None:
    folder = tmp_path / "study"
    made = json.loads(run(evaluated, *SYSTEMS, "--output", str(folder), "--json").stdout)
    assert made["num_cases"] == 10
    assert sorted(path.name for path in folder.iterdir()) == ["key.json", "sheet.csv"]
    key = json.loads((folder / "key.json").read_text())
    with (folder / "sheet.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    paths = []
    for grader, num_other in (("anna", 1), ("ben", 2)):
        for number, row in enumerate(rows):
            is_for_first = number >= num_other
            side = "A" if key["first_is_left"][row["item"]] == is_for_first else "B"
            row.update(fluency=side, informativeness="N", overall=side)
        paths.append(tmp_path / f"{grader}.csv")
        with paths[-1].open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    words = ("import", *map(str, paths), "--key", str(folder / "key.json"))
    found = json.loads(run(evaluated, *words, "--json").stdout)
    assert found["systems"] == ["village:cog", "village:transformer"]
    fluency, informativeness, _ = found["questions"]
    counts = ("num_better", "num_neither", "num_worse", "num_graders")
    assert [fluency[name] for name in counts] == [8, 1, 1, 2]  # they differ on the second case
    assert fluency["better"] == 0.8
    assert fluency["p_value"] == pytest.approx(2 * 10 / 2**9)
    assert fluency["agreement"] == pytest.approx(1 - 19 * 2 / (20**2 - 17**2 - 3**2))
    assert informativeness["num_neither"] == 10
    table = run(evaluated, *words).stdout
    assert "village:cog against village:transformer" in table
    assert "8 (80 %)" in table


def test_cog_is_compared_with_its_prefix_encoder_under_one_protocol(
    village: ProjectPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(village.root, tmp_path / "project")
    monkeypatch.setenv("COG_CACHE", str(tmp_path / "cache"))
    paths = ProjectPaths(tmp_path / "project")
    words = ("evaluate", "--corpus", "village", "--no-track", "--metric", "repetition")
    words += ("--prompts", "2", "--seeds", "0,1", "--device", "cpu")
    made = [call_json(paths, *words, "--system", system) for system in ("cog", "cog-tokens")]
    protocol = made[0]["digests"]["protocol"]
    assert made[1]["digests"]["protocol"] == protocol
    # other settings, evaluated last, are not taken
    call_json(paths, *words, "--system", "cog", "--decoding", "greedy")
    folder = tmp_path / "study"
    sides = ("--systems", "village", "village:cog-tokens", "--prompts", "4")
    run(paths, "export", *sides, "--output", str(folder))
    key = json.loads((folder / "key.json").read_text())
    assert key["protocol"] == protocol
    with (folder / "sheet.csv").open(newline="") as file:
        rows = {row["item"]: row for row in csv.DictReader(file)}
    evaluations = {
        "cog-tokens" if each.system.decoding.top_k_documents == 0 else "cog": each
        for each in load_results(paths, "village")
        if each.system.decoding.method == "nucleus"
    }
    texts = [
        {
            system: (text.prompt_id, text.generation.text.lstrip("'"))
            for system, text in zip(("cog", "cog-tokens"), pair, strict=True)
        }
        for seeds in zip(
            *(evaluations[system].seeds for system in ("cog", "cog-tokens")), strict=True
        )
        for pair in zip(*(seed.texts for seed in seeds), strict=True)
    ]
    found = []
    for item, row in rows.items():
        sides = ("text_a", "text_b") if key["first_is_left"][item] else ("text_b", "text_a")
        shown = [(key["prompt_ids"][item], row[side].lstrip("'")) for side in sides]
        found.append(dict(zip(("cog", "cog-tokens"), shown, strict=True)))
    assert sorted(found, key=str) == sorted(texts, key=str)
    assert sorted(key["first_is_left"].values()) == [False, False, True, True]
    sheet = (folder / "sheet.csv").read_text()
    assert "cog" not in sheet
    assert key["protocol"][:8] not in sheet


def test_a_hundred_pairs_of_an_ablation_are_exported(
    evaluated: ProjectPaths, tmp_path: Path
) -> None:
    save_texts(evaluated, "cog", 120)
    save_texts(evaluated, "cog", 120, top_k_documents=0)
    words = ("--systems", "village", "village:cog-tokens", "--prompts", "100", "--json")
    made = json.loads(run(evaluated, *words, "--output", str(tmp_path / "study")).stdout)
    assert made["num_cases"] == 100
    key = json.loads((tmp_path / "study" / "key.json").read_text())
    assert len(set(key["prompt_ids"].values())) == 100
    assert sum(key["first_is_left"].values()) == 50


def test_key_is_not_written_over(evaluated: ProjectPaths, tmp_path: Path) -> None:
    words = ("export", *SYSTEMS, "--output", str(tmp_path / "study"))
    run(evaluated, *words)
    before = (tmp_path / "study" / "key.json").read_text()
    assert "key must not be lost" in str(run(evaluated, *words, "--seed", "5").exception)
    assert (tmp_path / "study" / "key.json").read_text() == before
    run(evaluated, *words, "--seed", "5", "--force")
    assert (tmp_path / "study" / "key.json").read_text() != before


def test_system_that_was_not_evaluated_is_refused(evaluated: ProjectPaths, tmp_path: Path) -> None:
    words = ("export", "--systems", "village", "village:retro", "--output", str(tmp_path / "s"))
    assert "evaluated with retro" in str(run(evaluated, *words).exception)


def test_sheet_in_another_encoding_is_refused(evaluated: ProjectPaths, tmp_path: Path) -> None:
    run(evaluated, "export", *SYSTEMS, "--output", str(tmp_path / "study"))
    (tmp_path / "latin.csv").write_bytes("item,fluency\n1,\xe9\n".encode("latin-1"))
    key = str(tmp_path / "study" / "key.json")
    done = run(evaluated, "import", str(tmp_path / "latin.csv"), "--key", key)
    assert "latin.csv must be a text file in UTF-8" in str(done.exception)
