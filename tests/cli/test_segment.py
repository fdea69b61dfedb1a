"""``cog paper segment``: what is printed, and what is refused."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cog.cli.main import cli
from cog.errors import CorpusError, CorpusNotFoundError
from cog.paths import ProjectPaths
from tests.index.hash_model import make_documents, write_corpus


@pytest.fixture
def built(village: ProjectPaths, tmp_path: Path) -> ProjectPaths:
    return ProjectPaths(shutil.copytree(village.root, tmp_path / "copy"))


def call(project: ProjectPaths, *words: str) -> Result:
    return CliRunner().invoke(cli, ["--project", str(project.root), "paper", "segment", *words])


def test_the_report_is_printed_as_json(built: ProjectPaths) -> None:
    result = call(built, "--corpus", "village", "--json")
    assert result.exception is None, result.exception
    report = json.loads(result.stdout)
    assert report["copied_share"] == report["copied_words"] / report["num_words"] > 0
    assert report["words_per_second"] > 0
    assert sum(report["lengths"].values()) == report["num_phrases"]
    kept = json.loads(built.corpus("village").segments.read_text(encoding="utf-8"))
    assert {name: report[name] for name in kept} == kept


def test_the_text_has_a_bar_for_each_length(built: ProjectPaths) -> None:
    assert " 2 words" in call(built, "--corpus", "village").stdout


@pytest.mark.parametrize(
    ("number", "reason"), [(1, "there is one document"), (2, "no phrase is repeated")]
)
def test_nothing_to_copy_is_said(built: ProjectPaths, number: int, reason: str) -> None:
    documents = [
        replace(document, text=" ".join(f"{name}{i}" for i in range(9)))
        for name, document in zip("ab", make_documents(number), strict=False)
    ]
    write_corpus(built.corpus("village"), documents, prefixes=[])
    result = call(built, "--corpus", "village")
    assert result.exception is None, result.exception
    assert f"nothing can be copied: {reason}" in result.stdout


def test_what_cannot_be_done_is_refused(built: ProjectPaths) -> None:
    assert isinstance(call(built, "--corpus", "town").exception, CorpusNotFoundError)
    assert isinstance(call(built, "--corpus", "hamlet").exception, CorpusError)
