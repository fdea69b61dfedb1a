"""``cog index build|info|verify``: what is printed, and what is refused."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from cog.cli.main import cli
from cog.errors import (
    CogError,
    CorpusNotFoundError,
    IndexMismatchError,
    IndexNotBuiltError,
)
from cog.extras import is_installed
from cog.paths import ProjectPaths
from tests.index.hash_model import make_documents, write_corpus
from tests.index.ray_cluster import TOKEN
from tests.tiny_project import write_yaml


@pytest.fixture
def prepared(project: ProjectPaths, tiny_model: Path) -> ProjectPaths:
    shutil.copytree(tiny_model, project.root / "models" / "tiny")
    prefixes = ["The river house", "A stone"]
    write_corpus(project.corpus("village"), make_documents(8), prefixes=prefixes)
    return project


def call(project: ProjectPaths, *words: str) -> Result:
    return CliRunner().invoke(cli, ["--project", str(project.root), "index", *words])


def refusal(project: ProjectPaths, *words: str) -> CogError:
    result = call(project, *words)
    assert isinstance(result.exception, CogError), result.exception
    assert result.stdout == ""
    return result.exception


def test_build_info_and_verify_agree(prepared: ProjectPaths) -> None:
    result = call(prepared, "build", "village", "--device", "cpu", "--json")
    assert result.exception is None, result.exception
    built = json.loads(result.stdout)
    assert built.pop("built") is True
    assert built["documents"]["num_indexed"] == 8
    assert built["storage_cost"]["num_prefixes"] == 2
    assert built["sizes"]["contexts"] > 6 * built["num_tokens"]
    assert built["sizes"]["word_counts"] > 0
    shown = json.loads(call(prepared, "info", "village", "--json").stdout)
    assert shown == built | {"tuning": None}
    verified = json.loads(call(prepared, "verify", "village", "--json").stdout)
    assert verified["intact"] is True
    assert verified["digest"] == built["digest"]
    assert verified["num_words"] == built["num_words"]


def test_plan_counts_what_is_prepared_and_asks_for_what_is_not(prepared: ProjectPaths) -> None:
    assert refusal(prepared, "plan", "village").run == "cog index build wiki-mini"
    call(prepared, "build", "village", "--device", "cpu")
    planned = json.loads(call(prepared, "plan", "village", "--json").stdout)
    assert planned["measured_on"] == "village"
    shown = call(prepared, "plan", "en-wiki-10pct", "--words", "3000000000", "--price", "2")
    assert "en-wiki-10pct, 300,000,000 words" in shown.stdout
    assert "hours at" in shown.stdout
    assert "--words" in refusal(prepared, "plan", "en-wiki-10pct").run
    assert isinstance(refusal(prepared, "plan", "nowhere"), CorpusNotFoundError)


def test_texts_name_the_index(prepared: ProjectPaths) -> None:
    assert call(prepared, "build", "village").stdout.startswith("built\n")
    assert call(prepared, "build", "village").stdout.startswith("up to date\n")
    assert call(prepared, "build", "village", "--force").stdout.startswith("built\n")
    info = call(prepared, "info", "village").stdout
    assert "8 of 8" in info
    assert "int8" in info
    assert re.search(r"^contexts +0\.0 MB, \d+\.\d bytes a unit$", info, re.MULTILINE)
    assert re.search(r"^counts +0\.0 MB, \d+\.\d bytes a unit$", info, re.MULTILINE)
    assert "village is intact" in call(prepared, "verify", "village").stdout


def test_what_is_not_there_is_refused_with_the_command(prepared: ProjectPaths) -> None:
    for verb in ("build", "info", "verify"):
        assert isinstance(refusal(prepared, verb, "nowhere"), CorpusNotFoundError)
    for verb in ("info", "verify"):
        error = refusal(prepared, verb, "village")
        assert isinstance(error, IndexNotBuiltError)
        assert error.run == "cog index build village"


def test_verify_refuses_other_documents(prepared: ProjectPaths) -> None:
    call(prepared, "build", "village")
    write_corpus(prepared.corpus("village"), make_documents(9))
    error = refusal(prepared, "verify", "village")
    assert isinstance(error, IndexMismatchError)
    assert error.run == "cog index build village"


def test_verify_refuses_a_changed_byte(prepared: ProjectPaths) -> None:
    call(prepared, "build", "village")
    path = next(prepared.corpus("village").index.rglob("words.lance/data/*.lance"))
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    assert refusal(prepared, "verify", "village").run == "cog index build village --force"


def test_build_on_ray_without_ray_or_without_a_cluster_is_refused(
    prepared: ProjectPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("build", "village", "--device", "cpu", "--engine", "ray", "--address", "127.0.0.1:1")
    if is_installed("ray"):
        assert "must answer at 127.0.0.1:1" in refusal(prepared, *words).wanted
        params = yaml.safe_load(prepared.params.read_text())
        params["index"]["engine"] = "ray"
        write_yaml(prepared.params, params)
        monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:2")  # what a stage of the pipeline goes by
        assert "must answer at 127.0.0.1:2" in refusal(prepared, *words[:4]).wanted
    monkeypatch.setitem(sys.modules, "ray", None)
    error = refusal(prepared, *words)
    assert "the package ray" in error.wanted
    assert error.run == "pip install 'copy-generator[ray]'"
    assert not prepared.corpus("village").manifest.exists()


def test_an_address_is_that_of_a_cluster(prepared: ProjectPaths) -> None:
    result = call(prepared, "build", "village", "--address", "127.0.0.1:1")
    assert result.exit_code == 2
    assert "--address is that of a Ray cluster: it needs --engine ray" in result.stderr


@pytest.mark.slow
@pytest.mark.skipif(not is_installed("ray"), reason="the extra [ray] is not installed")
def test_build_on_ray_of_this_machine_is_the_build_of_this_process(
    prepared: ProjectPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (TOKEN | {"RAY_worker_niceness": "0"}).items():
        monkeypatch.setenv(name, value)
    found = [
        json.loads(call(prepared, "build", "village", "--force", "--json", *words).stdout)
        for words in (("--engine", "ray"), ("--engine", "local"))
    ]
    assert found[0]["digest"] == found[1]["digest"]
    assert found[0]["params"] == found[1]["params"]
    assert found[0]["folder"] != found[1]["folder"]
