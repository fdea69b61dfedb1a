"""``cog tune`` and the settings it leaves for ``cog generate`` and ``cog evaluate``."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from cog.decoding.tuning import USUAL_THRESHOLDS, Tuning, save_tuning
from cog.errors import CogError
from cog.index.versions.manifest import load_manifest
from cog.paths import ProjectPaths
from tests.calling import call, call_json

PREFIX = ("generate", "--corpus", "village", "--prefix", "The old mill", "--json")
VALUES: dict[str, Any] = {
    "verify": "absolute",
    "verify_threshold": 0.01,
    "phrase_bias": 1.5,
    "temperature": 0.9,
}


@pytest.fixture
def tuned(village: ProjectPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProjectPaths:
    """A built project of its own, with settings tuned for nucleus."""
    shutil.copytree(village.root, tmp_path / "own")
    monkeypatch.setenv("COG_CACHE", str(tmp_path / "cache"))
    paths = ProjectPaths(tmp_path / "own")
    manifest = load_manifest(paths.corpus("village"))
    tuning = Tuning(VALUES, manifest.digest, manifest.model, "nucleus", "2026-01-01", {})
    save_tuning(paths.corpus("village"), tuning)
    return paths


def decoding_of(paths: ProjectPaths, *words: str) -> dict[str, Any]:
    done = call(paths, *PREFIX, *words)
    assert done.exception is None, done.output
    decoding: dict[str, Any] = json.loads(done.stdout)["decoding"]
    return decoding


def test_tuned_settings_stand_between_the_command_line_and_params(tuned: ProjectPaths) -> None:
    assert VALUES.items() <= decoding_of(tuned).items()
    assert (
        "as tuned for this index: verify absolute 0.01, phrase_bias 1.5, temperature 0.9"
        in call(tuned, *PREFIX).stderr
    )
    given = decoding_of(tuned, "--phrase-bias", "0", "--temperature", "1")
    assert (given["verify"], given["phrase_bias"], given["temperature"]) == ("absolute", 0.0, 1.0)
    plain = decoding_of(tuned, "--untuned")
    assert (plain["verify"], plain["phrase_bias"]) == ("off", 0.0)
    greedy = call(tuned, *PREFIX, "--decoding", "greedy")
    assert json.loads(greedy.stdout)["decoding"]["verify"] == "off"
    assert "decoding nucleus, not greedy: left out" in greedy.stderr


def test_status_and_info_show_what_was_tuned(tuned: ProjectPaths) -> None:
    call(tuned, "switch", "--corpus", "village")
    shown = "verify absolute 0.01, phrase_bias 1.5, temperature 0.9, for nucleus"
    wanted = VALUES | {"decoding": "nucleus", "created_at": "2026-01-01"}
    for words in (("status",), ("index", "info", "village")):
        text, content = call(tuned, *words).stdout, call(tuned, *words, "--json").stdout
        assert any(line.split(maxsplit=1) == ["tuned", shown] for line in text.splitlines())
        assert json.loads(content)["tuning"] == wanted | {"used": True, "problem": None}
    manifest = load_manifest(tuned.corpus("village"))
    other = Tuning(VALUES, "0" * 64, manifest.model, "nucleus", "2026-01-01", {})
    save_tuning(tuned.corpus("village"), other)
    for words in (("status",), ("index", "info", "village")):
        found = json.loads(call(tuned, *words, "--json").stdout)["tuning"]
        assert (found["used"], found["verify"]) == (False, "absolute")
        assert found["problem"] == f"it is of index 000000000000, not {manifest.digest[:12]}"
        assert f"(left out: {found['problem']})" in call(tuned, *words).stdout
    tuned.corpus("village").tuning.write_text("{")
    for words in (("status",), ("index", "info", "village")):
        done = call(tuned, *words)
        assert done.exit_code == 0
        assert "next: cog tune --corpus village --reset" in done.stdout
    call(tuned, "tune", "--corpus", "village", "--reset")
    for words in (("status",), ("index", "info", "village")):
        assert json.loads(call(tuned, *words, "--json").stdout)["tuning"] is None
        assert "tuned" not in call(tuned, *words).stdout


def test_tuning_goes_with_the_index_that_is_read(tuned: ProjectPaths) -> None:
    call(tuned, "switch", "--corpus", "village")
    params = tuned.params.read_text(encoding="utf-8")
    tuned.params.write_text(params.replace("vector_dtype: int8", "vector_dtype: float16"))
    assert call(tuned, "index", "build", "village").exception is None
    prefix = [word for word in PREFIX if word not in ("--corpus", "village")]
    for words, is_used in ((prefix, True), (PREFIX, False)):  # what is switched on, what is new
        done = call(tuned, *words)
        assert done.exception is None, done.output
        assert ("as tuned for this index" in done.stderr) is is_used
        assert ("left out" in done.stderr) is not is_used
    assert call_json(tuned, "status")["tuning"]["used"]
    assert not json.loads(call(tuned, "index", "info", "village", "--json").stdout)["tuning"][
        "used"
    ]


def test_evaluation_says_and_digests_what_was_used(tuned: ProjectPaths) -> None:
    words = ("evaluate", "--corpus", "village", "--no-track", "--metric", "repetition", "--json")
    first, second = call(tuned, *words), call(tuned, *words, "--untuned")
    assert "as tuned for this index" in first.stderr
    one, two = json.loads(first.stdout), json.loads(second.stdout)
    assert VALUES.items() <= one["system"]["settings"].items()
    assert two["system"]["settings"]["verify"] == "off"
    assert one["digests"]["system"] != two["digests"]["system"]
    assert one["digests"]["protocol"] == two["digests"]["protocol"]
    other = call(tuned, *words, "--system", "transformer")
    assert "tuned" not in other.stderr  # what was chosen for cog is cog's alone
    assert json.loads(other.stdout)["system"]["settings"]["temperature"] == 1.0
    refused = call(tuned, *words, "--protocol", "paper-iclr2023", "--temperature", "0.5")
    assert refused.exit_code == 2
    assert "--temperature goes with protocol default only" in refused.stderr


def test_reset_forgets(tuned: ProjectPaths) -> None:
    assert (
        call(tuned, "tune", "--corpus", "village", "--reset").stdout == "params.yaml holds again\n"
    )
    assert not tuned.corpus("village").tuning.exists()
    done = call(tuned, "tune", "--corpus", "village", "--reset", "--json")
    assert json.loads(done.stdout) == {"corpus": "village", "removed": False}
    assert decoding_of(tuned)["verify"] == "off"


def test_a_package_that_rates_texts_is_missed_before_anything_runs(
    tuned: ProjectPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    done = call(tuned, "tune", "--corpus", "village")
    assert str(done.exception).endswith("next: pip install 'copy-generator[evaluate]'")


def test_what_cannot_be_tuned_is_one_line(tuned: ProjectPaths) -> None:
    for corpus, message in (("vilage", "vilage"), ("hamlet", "hamlet"), ("village", "eight held")):
        done = call(tuned, "tune", "--corpus", corpus)
        assert isinstance(done.exception, CogError), done.output
        assert message in str(done.exception)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--verify", "relative"), ("relative", USUAL_THRESHOLDS["relative"])),
        (("--verify", "entropy", "--verify-threshold", "0.02"), ("entropy", 0.02)),
        (("--verify", "off"), ("off", 0.0)),
        (("--min-token-probability", "0.004"), ("absolute", 0.004)),
        (("--min-token-probability", "0"), ("off", 0.0)),
        (("--verify-threshold", "0.5"), ("absolute", 0.5)),
    ],
)
def test_rules_are_given_in_short_or_in_full(
    tuned: ProjectPaths, words: tuple[str, ...], expected: tuple[str, float]
) -> None:
    found = decoding_of(tuned, *words)
    assert (found["verify"], found["verify_threshold"]) == expected


@pytest.mark.parametrize(
    "words",
    [
        ("--verify", "sometimes"),
        ("--verify", "relative", "--min-token-probability", "0.1"),
        ("--verify", "off", "--verify-threshold", "0.1"),
        ("--temperature", "0"),
        ("--min-token-probability", "1.5"),
    ],
)
def test_contradictions_are_wrong_usage(tuned: ProjectPaths, words: tuple[str, ...]) -> None:
    assert call(tuned, *PREFIX, *words).exit_code == 2
