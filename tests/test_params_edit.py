"""Editing params.yaml: one entry changes, comments and everything else stay."""

from pathlib import Path

import pytest
import yaml

from cog.errors import ParamsError
from cog.params_edit import (
    add_corpus_entry,
    find_corpus_entries,
    remove_corpus_entries,
    remove_lock_entries,
)

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
    assert add_corpus_entry(params, "new", "wiki-lead", "texts/a.txt")
    text = params.read_text(encoding="utf-8")
    assert text == TEXT.replace(
        "root: law\n", "root: law\n  new:\n    root: wiki-lead\n    source: texts/a.txt\n"
    )
    assert not add_corpus_entry(params, "new", "wiki-lead", "texts/a.txt")
    with pytest.raises(ParamsError, match="another entry corpora.new"):
        add_corpus_entry(params, "new", "new", ".dvcignore")
    assert params.read_text(encoding="utf-8") == text


def test_adding_and_removing_gives_the_same_bytes(params: Path) -> None:
    add_corpus_entry(params, "new", "new", ".dvcignore")
    assert remove_corpus_entries(params, "new") == ["corpora.new"]
    assert params.read_text(encoding="utf-8") == TEXT
    assert remove_corpus_entries(params, "new") == []


def test_the_last_entry_leaves_an_empty_mapping(params: Path) -> None:
    remove_corpus_entries(params, "wiki-mini")
    remove_corpus_entries(params, "law")
    content = yaml.safe_load(params.read_text(encoding="utf-8"))
    assert content["corpora"] == {}
    assert "# the small one" in params.read_text(encoding="utf-8")
    add_corpus_entry(params, "again", "again", ".dvcignore")
    content = yaml.safe_load(params.read_text(encoding="utf-8"))
    assert content["corpora"] == {"again": {"root": "again", "source": ".dvcignore"}}
    assert content["fetch"] == {"retries": 3}


@pytest.mark.parametrize(
    "corpus_id",
    [
        "1e5",
        "08",
        "0o7",
        "0x1f",
        "1-2",
        "2024",
        "2024-01-01",
        "no",
        "on",
        "y",
        "null",
        "true",
        "e5",
    ],
)
def test_ids_are_read_as_text_by_dvc_and_by_pyyaml(params: Path, corpus_id: str) -> None:
    from dvc.utils.serialize import load_yaml

    assert add_corpus_entry(params, corpus_id, corpus_id, "texts/No")
    wanted = {"root": corpus_id, "source": "texts/No"}
    assert yaml.safe_load(params.read_text(encoding="utf-8"))["corpora"][corpus_id] == wanted
    assert load_yaml(str(params))["corpora"][corpus_id] == wanted
    assert remove_corpus_entries(params, corpus_id) == [f"corpora.{corpus_id}"]
    assert params.read_text(encoding="utf-8") == TEXT


@pytest.mark.parametrize("head", ["corpora:", "corpora: {}", "corpora: null # none"])
def test_an_empty_section_takes_an_entry(tmp_path: Path, head: str) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(f"{head}\nmodel: x", encoding="utf-8")
    add_corpus_entry(path, "law", "law", ".dvcignore")
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert content["corpora"] == {"law": {"root": "law", "source": ".dvcignore"}}
    assert content["model"] == "x"


@pytest.mark.parametrize(
    "text", ["corpora: {a: {root: a}}\n", "model: x\n", "corpora: [", "corpora: [1]\n"]
)
def test_a_layout_that_cannot_be_edited_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ParamsError, match=r"edit corpora in params.yaml by hand"):
        add_corpus_entry(path, "law", "law", ".dvcignore")
    assert path.read_text(encoding="utf-8") == text


def test_the_lock_forgets_one_corpus(tmp_path: Path) -> None:
    path = tmp_path / "dvc.lock"
    assert not remove_lock_entries(path, "law")
    stages = {"fetch@law": {"cmd": "x"}, "fetch@law-mt": {"cmd": "y"}, "index@law": {"cmd": "z"}}
    path.write_text(yaml.safe_dump({"schema": "2.0", "stages": stages}), encoding="utf-8")
    assert remove_lock_entries(path, "law")
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert content == {"schema": "2.0", "stages": {"fetch@law-mt": {"cmd": "y"}}}


STAGES = """corpora:
  law:
    root: law
datastore:
  corpora: {law: {}, wiki: {a: 1}} # those that ask for one
  top_k: 8
train:
  # what is trained on
  corpora:
    wiki: {}
    "law": {} # the last
  profile: tiny
"""


def test_entries_of_a_corpus_go_from_every_section(params: Path) -> None:
    params.write_text(STAGES, encoding="utf-8")
    names = ["corpora.law", "datastore.corpora.law", "train.corpora.law"]
    assert find_corpus_entries(params, "law") == names
    assert remove_corpus_entries(params, "law") == names
    wanted = STAGES.replace("corpora:\n  law:\n    root: law\n", "corpora: {}\n")
    wanted = wanted.replace("{law: {}, wiki: {a: 1}}", "{wiki: {a: 1}}")
    assert params.read_text(encoding="utf-8") == wanted.replace('    "law": {} # the last\n', "")
    assert remove_corpus_entries(params, "wiki") == ["datastore.corpora.wiki", "train.corpora.wiki"]
    text = params.read_text(encoding="utf-8")
    assert "  corpora: {} # those that ask for one\n" in text
    assert "  corpora: {}\n  profile: tiny\n" in text


def test_a_section_that_cannot_be_edited_leaves_the_file_as_it_is(params: Path) -> None:
    text = STAGES.replace("  corpora: {law", "  ? corpora\n  : {law")
    params.write_text(text, encoding="utf-8")
    with pytest.raises(ParamsError, match=r"edit corpora in params.yaml by hand"):
        remove_corpus_entries(params, "law")
    assert params.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("text", ["", "words", "- a", "{[", "stages: [1]", "stages: {fetch@a: 3}"])
def test_a_lock_that_dvc_cannot_read_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "dvc.lock"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ParamsError, match="next: git checkout HEAD dvc.lock, or rm dvc.lock"):
        remove_lock_entries(path, "a")
    assert path.read_text(encoding="utf-8") == text
