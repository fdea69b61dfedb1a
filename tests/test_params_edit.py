"""Editing params.yaml: one entry changes, comments and everything else stay."""

from pathlib import Path

import pytest
import yaml

from cog.errors import ParamsError
from cog.params_edit import add_corpus_entry, remove_corpus_entry, remove_lock_entries

TEXT = """# top
corpora: # what is built
  # the small one
  wiki-mini:
    root: wiki-lead # its source

  law:
    root: law

# the model
model: models/x # here
fetch:
  retries: 3
"""


@pytest.fixture
def params(tmp_path: Path) -> Path:
    path = tmp_path / "params.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_an_entry_is_added_and_the_rest_stays(params: Path) -> None:
    assert add_corpus_entry(params, "new", "wiki-lead")
    text = params.read_text(encoding="utf-8")
    assert text == TEXT.replace("root: law\n", "root: law\n  new:\n    root: wiki-lead\n")
    assert not add_corpus_entry(params, "new", "wiki-lead")
    with pytest.raises(ParamsError, match="another entry corpora.new"):
        add_corpus_entry(params, "new", "new")
    assert params.read_text(encoding="utf-8") == text


def test_adding_and_removing_gives_the_same_bytes(params: Path) -> None:
    add_corpus_entry(params, "new", "new")
    assert remove_corpus_entry(params, "new")
    assert params.read_text(encoding="utf-8") == TEXT
    assert not remove_corpus_entry(params, "new")


def test_the_last_entry_leaves_an_empty_mapping(params: Path) -> None:
    remove_corpus_entry(params, "wiki-mini")
    remove_corpus_entry(params, "law")
    content = yaml.safe_load(params.read_text(encoding="utf-8"))
    assert content["corpora"] == {}
    assert "# the small one" in params.read_text(encoding="utf-8")
    add_corpus_entry(params, "again", "again")
    content = yaml.safe_load(params.read_text(encoding="utf-8"))
    assert content["corpora"] == {"again": {"root": "again"}}
    assert content["fetch"] == {"retries": 3}


@pytest.mark.parametrize("head", ["corpora:", "corpora: {}", "corpora: null # none"])
def test_an_empty_section_takes_an_entry(tmp_path: Path, head: str) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(f"{head}\nmodel: x", encoding="utf-8")
    add_corpus_entry(path, "law", "law")
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert content == {"corpora": {"law": {"root": "law"}}, "model": "x"}


@pytest.mark.parametrize(
    "text", ["corpora: {a: {root: a}}\n", "model: x\n", "corpora: [", "corpora: [1]\n"]
)
def test_a_layout_that_cannot_be_edited_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ParamsError, match=r"edit corpora in params.yaml by hand"):
        add_corpus_entry(path, "law", "law")
    assert path.read_text(encoding="utf-8") == text


def test_the_lock_forgets_one_corpus(tmp_path: Path) -> None:
    path = tmp_path / "dvc.lock"
    assert not remove_lock_entries(path, "law")
    stages = {"fetch@law": {"cmd": "x"}, "fetch@law-mt": {"cmd": "y"}, "index@law": {"cmd": "z"}}
    path.write_text(yaml.safe_dump({"schema": "2.0", "stages": stages}), encoding="utf-8")
    assert remove_lock_entries(path, "law")
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert content == {"schema": "2.0", "stages": {"fetch@law-mt": {"cmd": "y"}}}
