"""``cog corpus``: every verb, its JSON, and what it says when it cannot."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

from cog.corpus.next_step import name_build
from cog.errors import CogError
from cog.paths import ProjectPaths
from cog.pipeline_file import CorpusEntry, load_pipeline
from cog.records import Active
from cog.registry import load_card, save_card, switch_active
from tests.calling import call, refusal
from tests.tiny_project import TINY_PARAMS, write_yaml


def run(project: ProjectPaths, *arguments: str | Path) -> Result:
    return call(project, "corpus", *map(str, arguments))


def read_json(project: ProjectPaths, *arguments: str | Path) -> Any:  # noqa: ANN401
    result = run(project, *arguments, "--json")
    assert result.exception is None, result.output
    return json.loads(result.stdout)


def fail(project: ProjectPaths, *arguments: str | Path) -> str:
    return str(refusal(project, "corpus", *map(str, arguments)))


@pytest.fixture
def built(project: ProjectPaths, tiny_model: Path) -> ProjectPaths:
    """The village, fetched and prepared with the tokens of the tiny model."""
    write_yaml(project.params, {**TINY_PARAMS, "model": str(tiny_model)})
    read_json(project, "fetch", "village")
    read_json(project, "prepare", "village")
    return project


def test_stats_tell_words_and_phrases_of_a_built_index(village: ProjectPaths) -> None:
    found = read_json(village, "stats", "village")["information"]
    assert found["frequent_words"][0]["text"] == "the"
    counts = [each["count"] for each in found["frequent_words"]]
    assert counts == sorted(counts, reverse=True)
    most, least = found["most"][0], found["least"][0]
    assert most["bits"] > least["bits"] > 0
    shown = run(village, "stats", "village").stdout
    assert f" x  {most['text']}\n" in shown
    assert "least informative of the frequent phrases:" in shown


def test_list_shows_every_card(project: ProjectPaths) -> None:
    switch_active(project, Active("village", "1" * 64, "2" * 64, "2026-01-01T00:00:00Z"))
    rows = read_json(project, "list")
    assert [(row["id"], row["is_active"], row["extends"]) for row in rows] == [
        ("hamlet", False, "village"),
        ("village", True, None),
    ]
    assert "* village" in run(project, "list").stdout


def test_cards_that_come_with_cog_are_listed_and_added(project: ProjectPaths) -> None:
    shipped = {row["id"] for row in read_json(project, "list", "--shipped")}
    assert shipped >= {"law-mt", "wiki-mini", "en-wiki"}
    assert "added law-mt\n" in run(project, "add", "law-mt").stdout
    assert "law-mt" in {row["id"] for row in read_json(project, "list")}


def test_a_broken_card_does_not_hide_the_others(project: ProjectPaths) -> None:
    project.card("broken").write_text("id: [", encoding="utf-8")
    rows = read_json(project, "list")
    assert [row["id"] for row in rows] == ["broken", "hamlet", "village"]
    assert "broken.yaml must be YAML" in rows[0]["error"]


def test_fetch_and_prepare_say_what_they_did(built: ProjectPaths) -> None:
    report = read_json(built, "prepare", "village")
    assert report["num_read"] == report["num_documents"] + sum(report["skipped"].values())
    assert report["skipped"]["held-out"] > 0
    shown = run(built, "prepare", "village").stdout.splitlines()
    num_held_out = report["skipped"]["held-out"]
    assert shown[0].startswith(
        f"village: {report['num_read']} documents in = {report['num_documents']} to index"
    )
    assert f"+ {num_held_out} held out ({report['num_prompts']} prompts) + 0 skipped" in shown[0]
    assert shown[1].startswith(f"{num_held_out} held-out: {report['examples']['held-out'][0]}")
    assert shown[2:4] == ["files: 1 utf-8", "languages: en 100%"]
    shown.append("not indexed; next: cog index build village")
    assert run(built, "show", "village").stdout.endswith("\n".join(shown) + "\n")
    record = read_json(built, "fetch", "village", "--source", built.root / "texts")
    assert [entry["name"] for entry in record["files"]] == ["village.jsonl"]
    assert record["origin"] == "local"


def test_show_gives_card_counts_and_documents(built: ProjectPaths) -> None:
    shown = read_json(built, "show", "village")
    assert shown["card"]["id"] == "village"
    assert shown["prepared"]["num_prompts"] >= 0
    assert read_json(built, "show", "hamlet")["prepared"] is None
    assert "next: cog index build hamlet" in run(built, "show", "hamlet").stdout
    assert "fetched: 1 of 1 files taken" in run(built, "show", "village").stdout
    assert "prompts" in run(built, "show", "village").stdout
    first = json.loads((built.root / "texts" / "village.jsonl").read_text().splitlines()[0])
    document = read_json(built, "show", "village", "--document", first["id"])
    assert list(document) == ["document_id", "title", "text", "url", "licence", "source"]
    assert document["text"] == first["text"]
    assert run(built, "show", "village", "--document", first["id"]).stdout == first["text"] + "\n"
    assert "no document 'none'" in fail(built, "show", "village", "--document", "none")
    held_out = shown["prepared"]["examples"]["held-out"][0]
    message = fail(built, "show", "village", "--document", held_out)
    assert f"found: '{held_out}' is held out, for " in message
    assert "no document '\\udcff'" in fail(built, "show", "village", "--document", "\udcff")


def test_documents_are_listed_and_found_by_their_text(built: ProjectPaths) -> None:
    report = read_json(built, "show", "village")["prepared"]
    lines = run(built, "documents", "village").stdout.splitlines()
    num_held_out = report["skipped"]["held-out"]
    assert len(lines) == report["num_documents"] + num_held_out
    assert sum(line.startswith("- ") for line in lines) == num_held_out
    first = json.loads((built.root / "texts" / "village.jsonl").read_text().splitlines()[0])
    result = run(built, "documents", "village", "--grep", first["text"], "--json")
    found = {"document_id": first["id"], "title": first["title"], "is_held_out": False}
    assert [json.loads(line) for line in result.stdout.splitlines()] == [found]


def test_stats_count_what_is_prepared_and_tell_its_language(built: ProjectPaths) -> None:
    figures = read_json(built, "stats", "village")
    spread = figures["words_per_document"]
    assert spread["min"] <= spread["median"] <= spread["max"]
    assert abs(figures["num_words"] - spread["mean"] * figures["num_documents"]) < 1
    sample = figures["suitability"]
    assert (sample["languages"], sample["num_sampled"]) == ({"en": 1.0}, figures["num_documents"])
    assert 0 <= sample["unknown_pieces"] <= 1 < sample["tokens_per_word"]
    assert "words_per_document:" in run(built, "stats", "village").stdout
    assert "needs documents.parquet" in fail(built, "stats", "hamlet")


def test_validate_finds_what_is_broken(built: ProjectPaths) -> None:
    findings = read_json(built, "validate")
    checks = {"card", "pipeline", "raw", "source", "documents"}
    assert {each["check"] for each in findings} == checks
    assert all(each["is_ok"] for each in findings)
    raw = built.corpus("village").raw / "village.jsonl"
    raw.write_bytes(raw.read_bytes().replace(b"mill", b"hill"))
    built.card("hamlet").write_text("title: x\n", encoding="utf-8")
    result = run(built, "validate")
    assert isinstance(result.exception, CogError)
    assert "BROKEN  hamlet  card" in result.stdout
    assert "BROKEN  village  raw" in result.stdout
    assert "2 of 5 checks failed, first hamlet" in str(result.exception)


def test_add_takes_a_folder(project: ProjectPaths, tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "one.txt").write_text("One note.", encoding="utf-8")
    (folder / "two.txt").write_text("Two notes.", encoding="utf-8")
    (folder / ".hidden").mkdir()
    (folder / ".hidden" / "state.json").write_text("{}")
    added = read_json(project, "add", "notes", folder, "--licence", "CC0-1.0", "--title", "Notes")
    assert added["first_document"]["text"] == "One note."
    assert added["card"]["format"]["documents"] == "file"
    assert load_card(project, "notes").licence.id == "CC0-1.0"
    assert load_pipeline(project).corpora["notes"] == CorpusEntry("notes", str(folder))
    assert added["card"]["prompts"] == {"held_out": 0.0, "seed": 0}
    assert "corpus notes must be new" in fail(project, "add", "notes", folder)


def test_add_says_what_it_takes_and_what_it_leaves(project: ProjectPaths, tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    (folder / "deep").mkdir(parents=True)
    for name in ("a.rst", "deep/b.md", "c.1", "d.1", "README", "e.json"):
        (folder / name).write_text("A note.", encoding="utf-8")
    assert "found: 3 text, 2 with the ending .1, 1 json in" in fail(project, "add", "notes", folder)
    shown = run(project, "add", "notes", folder, "--format", "text").stdout
    left = "2 with the ending .1: c.1, d.1; 1 of kind json: e.json"
    assert f"3 of 6 files taken (not taken: {left})\n" in shown
    added = read_json(project, "add", "pages", folder, "--members", "*.1", "--members", "README")
    assert added["card"]["source"]["members"] == ["*.1", "README"]
    assert [each["name"] for each in added["files"]["files"]] == ["README", "c.1", "d.1"]


def test_add_inside_the_project_writes_a_relative_path(project: ProjectPaths) -> None:
    path = project.root / "texts" / "village.jsonl"
    added = read_json(project, "add", "town", path, "--id-field", "id", "--text-field", "text")
    assert added["card"]["source"]["path"] == "texts/village.jsonl"
    assert added["card"]["format"]["kind"] == "jsonl"


def test_add_takes_a_hub_name(project: ProjectPaths) -> None:
    result = run(project, "add", "news", "owner/name", "--text-field", "article")
    assert result.exception is None
    assert "taken as the hub data set owner/name" in result.stderr
    marked = run(project, "add", "marked", "hub:owner/name", "--text-field", "article")
    assert (marked.exception, "no such path" in marked.stderr) == (None, False)
    source = load_card(project, "news").source
    assert source is not None
    assert (source.type, source.dataset, source.split) == ("hub", "owner/name", ("train",))


@pytest.mark.parametrize(
    ("corpus_id", "place", "options", "message"),
    [
        ("law/mt", "a.txt", [], "a corpus id has 1 to 63 characters"),
        ("法律", "a.txt", [], "a corpus id has 1 to 63 characters"),
        ("x" * 300, "a.txt", [], "a corpus id has 1 to 63 characters"),
        ("law", "gone.txt", [], "found: no such path: gone.txt"),
        ("law", "./gone/dir", [], "found: no such path: ./gone/dir"),
        ("law", "gone", [], "found: no such path: gone"),
        ("law", "ftp://x.org/a.txt", [], "begins with http:// or https://; found: ftp://x.org"),
        ("law", "odd.xyz", [], "next: make text of them, or pass --format KIND"),
        ("law", "mixed", [], "next: pass --format text, or name the files that are meant"),
        ("law", "latin.txt", [], "latin.txt must be utf-8; found: byte 0xe9 at byte offset 3"),
        ("law", "empty.txt", [], "must hold at least one document"),
        ("law", "a.txt", ["--normaliser", "plain-v2"], "did you mean plain-v1?"),
        ("law", "a.txt", ["--held-out", "2"], "prompts.held_out must be a number"),
        ("law", "a.jsonl", ["--text-field", "body"], "field 'body' is missing"),
    ],
)
def test_add_refuses_in_one_line_and_leaves_nothing(
    project: ProjectPaths,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    corpus_id: str,
    place: str,
    options: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in {
        "a.txt": b"one",
        "odd.xyz": b"x",
        "latin.txt": b"caf\xe9",
        "empty.txt": b"\n\n",
        "a.jsonl": b'{"text": "x"}',
        "mixed/a.md": b"one",
        "mixed/b.md": b"two",
        "mixed/c.jsonl": b'{"text": "x"}',
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    before = project.pipeline_file.read_bytes(), sorted(project.cards.iterdir())
    assert message in fail(project, "add", corpus_id, place, *options)
    assert (project.pipeline_file.read_bytes(), sorted(project.cards.iterdir())) == before


def test_corpora_that_are_added_at_once_are_all_there(
    project: ProjectPaths, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_bytes(b"one")
    words = [sys.executable, "-m", "cog.cli.main", "--project", str(project.root), "corpus", "add"]
    names = ["one", "two", "three"]
    processes = [subprocess.Popen([*words, name, str(tmp_path / "a.txt")]) for name in names]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert set(load_pipeline(project).corpora) == {*names, "village", "hamlet"}
    assert all(project.card(name).is_file() for name in names)


def test_a_changed_local_source_is_named(project: ProjectPaths, tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    for name in ("a", "b", "c"):
        (folder / f"{name}.txt").write_text(f"Note {name}.", encoding="utf-8")
    read_json(project, "add", "notes", folder)
    read_json(project, "fetch", "notes")
    (folder / "a.txt").write_text("Note A.", encoding="utf-8")
    (folder / "b.txt").rename(folder / "d.txt")
    findings = {each["check"]: each["detail"] for each in validate(project, "notes")}
    assert findings["source"].endswith("1 added (d.txt), 1 removed (b.txt), 1 edited (a.txt)")
    assert findings["raw"] == "3 files as received"
    folder.rename(tmp_path / "elsewhere")  # as on another machine
    assert {each["check"]: each["is_ok"] for each in validate(project, "notes")}["source"]


def validate(project: ProjectPaths, corpus_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run(project, "validate", corpus_id, "--json").stdout)
    return found


def test_add_that_cannot_edit_the_pipeline_takes_the_card_back(
    project: ProjectPaths, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_bytes(b"one")
    project.pipeline_file.write_text("corpora: {a: {rot: a}}\n", encoding="utf-8")
    told = fail(project, "add", "law", tmp_path / "a.txt")
    assert "pipeline.yaml, line 1: corpora.a.rot is no known key" in told
    assert not project.card("law").exists()


def test_remove_takes_everything_of_a_corpus(built: ProjectPaths) -> None:
    assert "hamlet extends it" in fail(built, "remove", "village")
    read_json(built, "remove", "hamlet")
    lock = {"schema": "2.0", "stages": {"fetch@village": {}, "fetch@other": {}}}
    write_yaml(built.root / "dvc.lock", lock)
    planned = read_json(built, "remove", "village", "--dry-run")
    assert planned["is_dry_run"]
    assert built.card("village").exists()
    gone = read_json(built, "remove", "village")["removed"]
    assert gone == planned["removed"]
    assert not built.card("village").exists()
    assert not built.corpus("village").root.exists()
    assert load_pipeline(built).corpora == {}
    assert list(yaml.safe_load((built.root / "dvc.lock").read_text())["stages"]) == ["fetch@other"]
    assert "'village' needs a card" in fail(built, "remove", "village")


def test_the_active_corpus_is_not_removed(project: ProjectPaths) -> None:
    switch_active(project, Active("hamlet", "1" * 64, "2" * 64, "2026-01-01T00:00:00Z"))
    assert "must not be active to be removed" in fail(project, "remove", "hamlet")
    assert project.card("hamlet").exists()
    assert "a corpus id has" in fail(project, "remove", "../cards")


def test_unknown_corpora_are_named(project: ProjectPaths) -> None:
    for verb in ("show", "stats", "fetch", "prepare", "remove"):
        assert "corpus 'none' needs a card" in fail(project, verb, "none")
    build = "next: cog corpus fetch village && cog corpus prepare village"
    assert build in fail(project, "prepare", "village")


def test_commands_that_are_named_build_what_is_missing(built: ProjectPaths) -> None:
    card = load_card(built, "village")
    assert card.source is not None
    save_card(built, replace(card, id="law", source=replace(card.source, path=None)))
    hint = fail(built, "stats", "law").partition("next: ")[2]
    assert hint == "cog corpus fetch law --source DIR_OR_FILE && cog corpus prepare law"
    build = f"{hint.partition(' && ')[0]} && cog index build law"
    said = f"next: choose another id, or build what registry/cards/law.yaml describes: {build}"
    assert said in fail(built, "add", "law", "owner/name")
    for command in hint.replace("DIR_OR_FILE", str(built.root / "texts")).split(" && "):
        assert run(built, *command.split()[2:]).exception is None
    read_json(built, "stats", "law")
    assert run(built, *fail(built, "show", "none").partition("next: cog corpus ")[2:]).stdout
    built.pipeline.touch()
    assert name_build(built.corpus("hamlet")) == "dvc repro index@hamlet"
    assert name_build(built.corpus("law")) == "cog index build law"  # params.yaml has no such entry


def test_listing_reads_every_card_once_and_loads_nothing_heavy(project: ProjectPaths) -> None:
    card = load_card(project, "village")
    for number in range(30):
        save_card(project, replace(card, id=f"village-{number}"))
    code = (
        "import sys\nfrom cog.cli.main import cli\nopened = []\n"
        "sys.addaudithook(lambda event, given: opened.append(given[0]) if event == 'open' else 0)\n"
        f"cli(['--project', {str(project.root)!r}, 'corpus', 'list'], standalone_mode=False)\n"
        "cards = [each for each in map(str, opened) if each.endswith('.yaml')]\n"
        "heavy = {'torch', 'lancedb', 'pyarrow', 'numpy', 'datasets'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else f'{len(cards)} {len(set(cards))}')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert len(done.stdout.splitlines()) == 32
    assert done.stderr.split() == ["33", "33"]  # and what the pipeline builds


def test_duplicates_are_reported(built: ProjectPaths) -> None:
    found = read_json(built, "duplicates", "village")
    assert (found["corpus"], found["threshold"], found["num_near"]) == ("village", 0.8, 0)
    path = built.root / "texts" / "village.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    copies = [{**json.loads(line), "id": f"copy-{number}"} for number, line in enumerate(lines)]
    for copy in copies:
        copy["text"] = f"{copy['text']} And so it went."
    path.write_text("\n".join([*lines, *map(json.dumps, copies)]), encoding="utf-8")
    read_json(built, "fetch", "village")
    read_json(built, "prepare", "village")
    found = read_json(built, "duplicates", "village", "--threshold", "0.6", "--limit", "2")
    assert found["num_near"] > 5
    assert len(found["repetitions"]) == 2
    result = run(built, "duplicates", "village", "--threshold", "0.6")
    assert "repeats" in result.stdout
    assert "next: set deduplicate: near" in result.stderr
    assert "needs documents.parquet" in fail(built, "duplicates", "hamlet")


def test_add_writes_what_it_is_told_of_dirty_files(project: ProjectPaths, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes('{"a": {"body": "caf\u00e9 &amp; more"}}\n'.encode("utf-16"))
    words = ["--encoding", "detect", "--text-field", "a.body", "--schema", "a.body=text"]
    words += ["--deduplicate", "near", "--near-threshold", "0.9", "--normaliser", "html-v1"]
    added = read_json(project, "add", "rows", path, *words)
    assert added["first_document"]["text"] == "café & more"
    card = load_card(project, "rows")
    assert card.format is not None
    assert card.filters is not None
    assert (card.format.schema, card.filters.near_threshold) == ({"a.body": "text"}, 0.9)
    assert "given as NAME=TYPE" in fail(project, "add", "other", path, "--schema", "a")
    message = fail(project, "add", "other", path, *words, "--schema", "b=string")
    assert "format.schema.b must be one of text" in message
