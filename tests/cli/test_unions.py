"""Unions on the command line, and documents that may not be copied from."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torch import nn

from cog.baselines.knn_lm import open_knn_lm
from cog.baselines.retro.adapter import make_adapter
from cog.baselines.retro.config import make_config
from cog.baselines.retro.folder import get_adapter_folder, save_adapter
from cog.baselines.systems import open_system
from cog.decoding.request import Request
from cog.model.load import load_model
from cog.params import load_params
from cog.paths import ProjectPaths
from cog.records import Decoding
from tests.built_project import add_corpus, build_corpus
from tests.calling import call, call_json, refusal
from tests.choices import assert_same_choices, record_choices
from tests.tiny_project import make_project, write_yaml


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> ProjectPaths:
    """A project with a corpus, and its halves as corpora of their own."""
    paths = make_project(tmp_path_factory.mktemp("halves") / "project")
    shutil.copytree(tiny_model, paths.root / "models" / "tiny")
    lines = (paths.root / "texts" / "village.jsonl").read_text("utf-8").splitlines()
    marked = [
        json.dumps({**json.loads(line), "by": "CC0-1.0" if i % 2 else "MIT"})
        for i, line in enumerate(lines)
    ]
    for corpus_id, part in (("whole", marked), ("north", marked[:7]), ("south", marked[7:])):
        add_corpus(paths, corpus_id, part)
    return paths


WRITE = ("generate", "--prefix", "The council of the", "--phrase-bias", "4")
LONG = ("--max-new-tokens", "40", "--decoding", "greedy")


def cited(line: dict[str, Any]) -> list[tuple[str, str, int]]:
    return [
        (segment["text"], segment["document_id"], segment["char_start"])
        for segment in line["segments"]
        if segment["from"] == "corpus"
    ]


def test_union_writes_what_one_index_of_all_writes(halves: ProjectPaths) -> None:
    with record_choices() as wanted:
        whole = call_json(halves, *WRITE, *LONG, "--corpus", "whole")
    with record_choices() as found:
        union = call_json(halves, *WRITE, *LONG, "--corpus", "north+south")
    assert_same_choices(found, wanted)
    assert wanted[0].margin > 1e-3  # so that no rounding changes a choice
    assert union["text"] == whole["text"]
    assert cited(union) == cited(whole)
    assert union["corpus"] == "north+south"
    north = (halves.root / "texts" / "north.jsonl").read_text("utf-8")
    for segment in union["segments"]:
        if segment["from"] == "corpus":
            is_north = f'"id": "{segment["document_id"]}"' in north
            assert segment["corpus"] == ("north" if is_north else "south")
    assert {each["corpus"] for each in whole["segments"] if each["from"] == "corpus"} == {"whole"}


def test_both_parts_of_a_union_are_copied_from(halves: ProjectPaths) -> None:
    words = (*WRITE, "--max-new-tokens", "120", "--corpus", "north+south")
    union = call_json(halves, *words)
    copied = {each["corpus"] for each in union["segments"] if each["from"] == "corpus"}
    assert copied == {"north", "south"}
    shown = call(halves, *words).stdout
    assert "north · " in shown
    assert "south · " in shown


def test_switch_status_history_and_rollback_of_a_union(halves: ProjectPaths) -> None:
    call_json(halves, "switch", "--corpus", "whole")
    change = call_json(halves, "switch", "--corpus", "north+south")
    digests = change["to"]["index"].split("+")
    assert len(digests) == 2
    assert change["to"]["corpus"] == "north+south"
    status = call_json(halves, "status")
    parts = [json.loads(halves.corpus(each).manifest.read_text()) for each in ("north", "south")]
    assert status["chunks"] == sum(part["num_chunks"] for part in parts)
    assert call_json(halves, *WRITE)["index"] == change["to"]["index"]
    assert "north+south" in call(halves, "history").stdout
    listed = {row["id"]: row["is_active"] for row in call_json(halves, "corpus", "list")}
    assert (listed["north"], listed["south"], listed["whole"]) == (True, True, False)
    (version,) = call_json(halves, "corpus", "versions", "south")
    assert (version["is_active"], version["digest"]) == (True, digests[1])
    assert call_json(halves, "rollback")["to"]["corpus"] == "whole"
    short = "+".join(digest[:8] for digest in digests)
    again = call_json(halves, "switch", "--corpus", "north+south", "--index", short)
    assert again["to"]["index"] == change["to"]["index"]
    assert call_json(halves, "rollback")["to"]["corpus"] == "whole"


def test_wrong_unions_are_refused(halves: ProjectPaths) -> None:
    assert "once" in str(refusal(halves, "switch", "--corpus", "north+north"))
    assert "needs a card" in str(refusal(halves, "switch", "--corpus", "north+nowhere"))
    assert "cog index build village" in str(refusal(halves, "switch", "--corpus", "north+village"))
    assert "one index for each" in str(
        refusal(halves, "switch", "--corpus", "north+south", "--index", "abc")
    )


def test_evaluation_of_a_union(halves: ProjectPaths) -> None:
    build_corpus(halves, "village")
    words = ("evaluate", "--corpus", "north+south", "--metric", "copies", "--no-track")
    assert call(halves, *words).exit_code == 2
    shared = ("--prompts-of", "village", "--prompts", "1", "--allow-contamination")
    found = call_json(halves, *words, *shared)
    assert found["system"]["corpus"] == "north+south"
    digests = [call_json(halves, "index", "info", part)["digest"] for part in ("north", "south")]
    assert found["system"]["index"] == "+".join(digests)
    assert found["scores"]


@pytest.fixture(scope="module")
def searched(halves: ProjectPaths) -> ProjectPaths:
    """The halves and the whole with datastores, and an adapter of RETRO with open gates."""
    for corpus_id in ("whole", "north", "south"):
        call_json(halves, "paper", "datastore", "build", corpus_id, "--device", "cpu")
    model = load_model(halves.root / "models" / "tiny")
    adapter = make_adapter(make_config(model, load_params(halves.params).retro), seed=0)
    for name, value in adapter.named_parameters():
        if name.endswith(".gate"):
            nn.init.constant_(value, 2.0)
    folder = get_adapter_folder(halves, "whole")
    save_adapter(folder, adapter, model=model.fingerprint, training={})
    return halves


@pytest.mark.parametrize("method", ["greedy", "nucleus"])
@pytest.mark.parametrize("system", ["knn-lm", "retro"])
def test_baselines_write_on_a_union_what_they_write_on_all_documents(
    searched: ProjectPaths, system: str, method: str
) -> None:
    params = load_params(searched.params)
    params = replace(params, datastore=replace(params.datastore, weight=0.9))
    decoding = Decoding(method, 0.95, 0, 40, 16, 0.0)
    requests = [
        Request(prefix, decoding) for prefix in ("The council of the", "On market days", "")
    ]
    texts, choices = {}, {}
    for corpus_id in ("whole", "north+south", "transformer"):
        name = "transformer" if corpus_id == "transformer" else system
        with (
            open_system(
                searched, params, corpus_id=corpus_id, name=name, device="cpu"
            ) as generator,
            record_choices() as choices[corpus_id],
        ):
            texts[corpus_id] = generator.generate(requests)
    found = texts["north+south"]
    assert_same_choices(choices["north+south"], choices["whole"])
    assert [each.text for each in found] != [each.text for each in texts["transformer"]]
    assert {each.corpus for each in found} == {"north+south"}
    assert {each.index.count("+") for each in found} == {1}


def test_a_datastore_finds_on_a_union_what_it_finds_in_that_of_all_documents(
    searched: ProjectPaths,
) -> None:
    settings = load_params(searched.params).datastore
    model = load_model(searched.root / "models" / "tiny")
    ids = model.splitter.encode("The mill by the river is older than the bridge").tolist()
    cache = model.prefix_encoder.new_cache(batch=1, capacity=64)
    with torch.inference_mode():
        states = model.prefix_encoder.append(cache, [ids])
    whole, union = (
        open_knn_lm(searched, corpus_id, model=model, settings=settings).find_neighbours(
            states, top_k=30
        )
        for corpus_id in ("whole", "north+south")
    )
    assert union[0].shape == (len(ids), 30)
    np.testing.assert_allclose(union[0], whole[0], rtol=1e-3, atol=1e-3)
    assert (union[1] == whole[1]).mean() > 0.95  # the rest are equally near


def test_baselines_of_a_union_are_evaluated_or_refused_in_one_line(
    searched: ProjectPaths, empty_runs: Path
) -> None:
    shutil.copy(empty_runs, searched.runs_database)
    build_corpus(searched, "village")
    words = ("evaluate", "--no-track", "--metric", "repetition", "--prompts-of", "village")
    words += ("--prompts", "1", "--device", "cpu", "--allow-contamination")
    for system in ("knn-lm", "retro"):
        named = (*words, "--system", system, "--corpus")
        union, whole = (call_json(searched, *named, each) for each in ("north+south", "whole"))
        assert union["system"]["index"] != whole["system"]["index"]
        shown = call(searched, "compare", "north+south", "--system", system, "--json", *words[4:6])
        assert shown.exception is None, shown.output
    union = ("--corpus", "north+village")
    missing = refusal(searched, *words, *union, "--system", "knn-lm")
    assert "next: cog paper datastore build village" in str(missing)
    tuned = refusal(searched, *words, *union, "--system", "transformer-ft")
    assert "--data FILES --out models/tokens-north+village" in str(tuned)
    study = ("--setting", "en-wiki", "--memory", "north+south", *words[2:], "--decoding", "greedy")
    gaps = call_json(searched, "paper", "study", "table", *study)["gaps"]
    assert list(gaps) == ["transformer-ft greedy"]


def test_denied_and_excluded_documents_are_never_copied_from(halves: ProjectPaths) -> None:
    words = (*WRITE, "--max-new-tokens", "120", "--corpus", "north+south")
    before = call_json(halves, *words)["segments"]
    free = {each["document_id"] for each in before if each["from"] == "corpus"}
    licences = {each["licence"] for each in before if each["from"] == "corpus"}
    assert licences == {"MIT", "CC0-1.0"}
    after = call_json(halves, *words, "--deny-licence", "MIT")["segments"]
    assert {each["licence"] for each in after if each["from"] == "corpus"} == {"CC0-1.0"}
    excluded = sorted(free)[:3]
    options = [word for each in excluded for word in ("--exclude-document", each)]
    after = call_json(halves, *words, *options)["segments"]
    left = {each["document_id"] for each in after if each["from"] == "corpus"}
    assert left
    assert not left & set(excluded)


def test_documents_that_cannot_be_excluded_are_refused(halves: ProjectPaths) -> None:
    assert "no document 'nobody'" in str(
        refusal(halves, *WRITE, "--corpus", "whole", "--exclude-document", "nobody")
    )
    south = (halves.root / "texts" / "south.jsonl").read_text("utf-8").splitlines()
    every = [word for each in south for word in ("--exclude-document", json.loads(each)["id"])]
    assert "must leave something" in str(refusal(halves, *WRITE, "--corpus", "south", *every))


SENTENCE = "The heron of Lake Ymir keeps a brass key under its left wing."


def test_a_document_that_its_card_excludes_can_no_longer_be_written(halves: ProjectPaths) -> None:
    lines = (halves.root / "texts" / "north.jsonl").read_text("utf-8").splitlines()
    planted = json.dumps({"id": "heron", "title": "Heron", "by": "Heron-1.0", "text": SENTENCE})
    copy = json.dumps({"id": "again", "title": "Heron", "by": "Heron-1.0", "text": SENTENCE})
    add_corpus(halves, "lake", [*lines, planted, copy])
    words = ("generate", "--prefix", "The heron of", *LONG, "--phrase-bias", "9")
    words = (*words, "--corpus", "lake")
    before = call_json(halves, *words, "--allow-licence", "Heron-1.0")
    assert "heron" in {each.get("document_id") for each in before["segments"]}
    card = yaml.safe_load(halves.card("lake").read_text("utf-8"))
    card["filters"]["exclude"] = ["heron", "nobody"]
    write_yaml(halves.card("lake"), card)
    build_corpus(halves, "lake")
    stats = call_json(halves, "corpus", "stats", "lake")
    assert stats["skipped"]["excluded"] == 1
    assert stats["skipped"]["duplicate"] == 1
    assert any("'nobody'" in note for note in stats["notes"])
    assert "no document of licence" in str(refusal(halves, *words, "--allow-licence", "Heron-1.0"))
    after = call_json(halves, *words)
    sources = {each.get("document_id") for each in after["segments"]}
    assert not sources & {"heron", "again"}
    for path in (halves.corpus("lake").root / "documents.parquet", halves.corpus("lake").index):
        files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
        assert files
        assert not any(b"Lake Ymir" in each.read_bytes() for each in files)
