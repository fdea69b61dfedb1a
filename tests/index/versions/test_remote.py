"""Indexes on an object store: a server that speaks S3 on loopback, and connections that break."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import boto3
import numpy as np
import pytest
import yaml

from cog.corpus.documents import DocumentStore
from cog.index.project import build_corpus_index
from cog.index.read.reader import open_index
from cog.index.search.contexts import CONTEXTS, find_places
from cog.index.tables.word_counts import WORD_COUNTS
from cog.index.versions import remote
from cog.index.versions.folders import remove_leftovers
from cog.index.versions.manifest import load_manifest
from cog.locks import is_locked
from cog.params import load_params
from cog.paths import BUILD, VERSIONS, ProjectPaths
from cog.progress import SilentProgress
from tests.calling import call_json, refusal
from tests.index.breaking import Breaking
from tests.index.hash_model import write_corpus
from tests.index.versions.s3_server import BUCKET, S3Server, serve_s3
from tests.tiny_project import write_yaml


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """A server that speaks S3, and an empty bucket."""
    with serve_s3() as server:
        yield server.url


@pytest.fixture(autouse=True)
def access(endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    values = S3Server(endpoint).set_access(tmp_path.name)
    values["COG_CACHE"] = str(tmp_path / "cache")
    for name, value in values.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def here(village: ProjectPaths, tmp_path: Path) -> ProjectPaths:
    root = tmp_path / "here"
    shutil.copytree(village.root, root)
    return ProjectPaths(root)


@pytest.fixture
def there(here: ProjectPaths, tmp_path: Path) -> ProjectPaths:
    """Another machine's project: the same cards, model and documents, and no index."""
    root = tmp_path / "there"
    shutil.copytree(here.root, root)
    paths = ProjectPaths(root)
    shutil.rmtree(paths.corpus("village").index)
    paths.corpus("village").manifest.unlink()
    return paths


WRITE = ("generate", "--corpus", "village", "--prefix", "The old mill", "--phrase-bias", "4")


def test_push_pull_and_generate(here: ProjectPaths, there: ProjectPaths) -> None:
    digest = call_json(here, "index", "push", "village")["digest"]
    assert call_json(there, "index", "pull", "village")["digest"] == digest
    assert list(there.corpus("village").index.glob("*")) == []
    assert call_json(there, "switch", "--corpus", "village")["to"]["index"] == digest
    assert call_json(there, "status")["intact"]
    wanted, found = call_json(here, *WRITE), call_json(there, *WRITE)
    assert found["segments"] == wanted["segments"]
    assert any(segment["from"] == "corpus" for segment in found["segments"])
    assert call_json(there, "index", "verify", "village")["digest"] == digest


@pytest.mark.slow
def test_nothing_is_held_while_tables_are_pulled(
    here: ProjectPaths, there: ProjectPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    call_json(here, "index", "push", "village")
    get, names = remote._ObjectStore.get, []

    def get_unheld(self: remote._ObjectStore, name: str, target: Path, **words: str) -> None:
        names.append(name)
        for holder in (BUILD, VERSIONS):
            assert not is_locked(there.corpus("village").lock(holder)), "others wait for a download"
        remove_leftovers(there.corpus("village"), keep=[])  # as a build does
        get(self, name, target, **words)

    monkeypatch.setattr(remote._ObjectStore, "get", get_unheld)
    pulled = call_json(there, "index", "pull", "village", "--tables")
    assert len(names) == 1 + len(load_manifest(there.corpus("village")).files)
    assert pulled["digest"] == load_manifest(here.corpus("village")).digest
    assert call_json(there, "index", "verify", "village")["digest"] == pulled["digest"]


def test_pull_of_the_tables_needs_no_store_afterwards(
    here: ProjectPaths, there: ProjectPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    call_json(here, "index", "push", "village")
    call_json(here, "index", "push", "village")  # again: what is there stays
    call_json(there, "index", "pull", "village", "--tables")
    monkeypatch.delenv("COG_INDEX_URI")
    assert call_json(there, *WRITE)["segments"] == call_json(here, *WRITE)["segments"]


@pytest.mark.slow
@pytest.mark.parametrize("after_bytes", [0, 100, 5000])
def test_a_connection_that_breaks_is_tried_again(
    here: ProjectPaths,
    there: ProjectPaths,
    endpoint: str,
    monkeypatch: pytest.MonkeyPatch,
    after_bytes: int,
) -> None:
    call_json(here, "index", "push", "village")
    for words in (("index", "pull", "village", "--tables"), WRITE):
        door = Breaking(endpoint, num_broken=2, after_bytes=after_bytes)
        with closing(door):
            monkeypatch.setenv("AWS_ENDPOINT_URL", door.url)
            call_json(there, *words)
            assert door.num_connections > 2 or words == WRITE
        if words != WRITE:
            shutil.rmtree(there.corpus("village").index)


@pytest.mark.slow
def test_a_store_that_stays_broken_is_one_line(
    here: ProjectPaths, there: ProjectPaths, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    call_json(here, "index", "push", "village")
    call_json(there, "index", "pull", "village")
    with closing(Breaking(endpoint, num_broken=10**9, after_bytes=50)) as door:
        monkeypatch.setenv("AWS_ENDPOINT_URL", door.url)
        before = there.corpus("village").manifest.read_bytes()
        for words in (("index", "pull", "village"), ("index", "push", "village"), WRITE):
            paths = here if "push" in words else there
            assert "must be within reach at s3://indexes/" in str(refusal(paths, *words))
        assert there.corpus("village").manifest.read_bytes() == before
        assert list(there.corpus("village").index.glob("*")) == []


def test_contexts_and_word_counts_are_fetched_once(
    here: ProjectPaths, there: ProjectPaths, tmp_path: Path
) -> None:
    call_json(here, "index", "push", "village")
    call_json(there, "index", "pull", "village")
    found = []
    for paths in (here, there, there):
        with open_index(paths.corpus("village")) as index:
            chunks = index.gather_chunks(np.arange(index.num_chunks))
            places = find_places(index.contexts, chunks.token_ids[1:5], min_tokens=2, max_places=9)
            bits = index.get_word_bits(chunks.word_hashes)
            found.append(
                (index.parts[0].is_remote, places.num_tokens, places.chunk_ids.tolist(), bits.sum())
            )
        (cached,) = (
            (tmp_path / "cache" / "indexes").iterdir() if index.parts[0].is_remote else [None]
        )
    assert [each[0] for each in found] == [False, True, True]
    assert found[0][1:] == found[1][1:] == found[2][1:]
    assert found[0][1] == 4
    assert cached is not None
    assert {path.name for path in cached.iterdir()} == {WORD_COUNTS, CONTEXTS.rstrip("/")}


def test_what_is_not_there_or_not_named_is_refused(
    there: ProjectPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "cog index push village" in str(refusal(there, "index", "pull", "village"))
    for value in ("gs://bucket", "s3://", "s3://B_", "/a/folder"):
        monkeypatch.setenv("COG_INDEX_URI", value)
        assert "COG_INDEX_URI must name a bucket" in str(refusal(there, "index", "pull", "village"))
    monkeypatch.setenv("COG_INDEX_URI", "")
    assert "neither index.uri in its card" in str(refusal(there, "index", "pull", "village"))


def test_a_pull_stays_inside(here: ProjectPaths, there: ProjectPaths, endpoint: str) -> None:
    call_json(here, "index", "push", "village")
    manifest = json.loads(here.corpus("village").manifest.read_bytes())
    manifest["files"]["../../../../escaped"] = next(iter(manifest["files"].values()))
    outside = f"{manifest['folder']}/../../../../escaped"
    for name, body in (("manifest.json", json.dumps(manifest)), (outside, "x")):
        key = f"{here.root.parent.name}/village/{name}"
        boto3.client("s3", endpoint_url=endpoint).put_object(Bucket=BUCKET, Key=key, Body=body)
    assert "files below its folder" in str(refusal(there, "index", "pull", "village", "--tables"))
    assert list(there.root.parent.rglob("escaped")) == []


def test_a_pull_of_another_corpus_is_refused(
    here: ProjectPaths, there: ProjectPaths, endpoint: str
) -> None:
    call_json(here, "index", "push", "village")
    content = json.loads(here.corpus("village").manifest.read_bytes())
    for other in ("hamlet", "../../escaped"):
        body = json.dumps(content | {"corpus": other})
        key = f"{here.root.parent.name}/village/manifest.json"
        boto3.client("s3", endpoint_url=endpoint).put_object(Bucket=BUCKET, Key=key, Body=body)
        assert "needs its own index" in str(refusal(there, "index", "pull", "village"))
    assert list(there.root.parent.rglob("there/**/manifest.json")) == []
    assert list(there.root.parent.rglob("escaped")) == []


def test_a_pull_keeps_what_is_switched_on(here: ProjectPaths, there: ProjectPaths) -> None:
    old = call_json(here, "index", "push", "village")["digest"]
    call_json(there, "index", "pull", "village")
    call_json(there, "switch", "--corpus", "village")
    wanted = call_json(there, *WRITE[:1], *WRITE[3:])
    documents = DocumentStore(here.corpus("village").documents).iter_documents()
    write_corpus(here.corpus("village"), list(documents)[1:])
    params = load_params(here.params)
    build_corpus_index(here, "village", params=params, progress=SilentProgress())
    new = call_json(here, "index", "push", "village")["digest"]
    assert call_json(there, "index", "pull", "village")["digest"] == new != old
    status = call_json(there, "status")
    assert (status["active"]["index"], status["intact"]) == (old, True)
    assert call_json(there, *WRITE[:1], *WRITE[3:])["segments"] == wanted["segments"]
    (there.corpus("village").documents).unlink()  # of the older version
    assert call_json(there, "switch", "--corpus", "village")["to"]["index"] == new
    assert call_json(there, "rollback")["to"]["index"] == old


def build_again(paths: ProjectPaths, **changes: int) -> str:
    """Build what was built from nothing; the digest is that of any other build."""
    params = load_params(paths.params)
    params = replace(params, index=replace(params.index, **changes))
    report = build_corpus_index(
        paths, "village", params=params, progress=SilentProgress(), force=True
    )
    return report.manifest.digest


def test_a_pull_of_what_was_built_here_too_changes_nothing(
    here: ProjectPaths, there: ProjectPaths
) -> None:
    digest = call_json(here, "index", "push", "village")["digest"]
    assert build_again(there) == digest
    before = there.corpus("village").manifest.read_bytes()
    for words in ((), ("--tables",)):
        assert call_json(there, "index", "pull", "village", *words)["digest"] == digest
        assert there.corpus("village").manifest.read_bytes() == before
    assert call_json(there, "status")["active"] is None
    assert call_json(there, "index", "verify", "village")["digest"] == digest


@pytest.mark.parametrize("commit_chunks", [8, 3], ids=["as-many-writes", "more-writes"])
def test_an_equal_build_is_pushed_over_a_push_that_broke_off(
    here: ProjectPaths, there: ProjectPaths, commit_chunks: int
) -> None:
    digest = build_again(there, commit_chunks=commit_chunks)
    call_json(there, "index", "push", "village")
    for name in ("manifest.json", find_table(there)):
        delete_object(f"{os.environ['COG_INDEX_URI']}/village/{name}")
    assert call_json(here, "index", "push", "village")["digest"] == digest
    corpus = there.corpus("village")
    for words in (("--tables",), ()):
        shutil.rmtree(corpus.index)
        corpus.manifest.unlink()
        call_json(there, "index", "pull", "village", *words)
        assert load_manifest(corpus).files == load_manifest(here.corpus("village")).files
        assert call_json(there, "index", "verify", "village")["digest"] == digest


def test_an_equal_build_is_not_pushed_again(here: ProjectPaths, there: ProjectPaths) -> None:
    call_json(here, "index", "push", "village")
    build_again(there)
    call_json(there, "index", "push", "village")
    shutil.rmtree(there.corpus("village").index)
    call_json(there, "index", "pull", "village")
    files = load_manifest(here.corpus("village")).files
    assert load_manifest(there.corpus("village")).files == files
    delete_object(f"{os.environ['COG_INDEX_URI']}/village/{find_table(here)}")
    call_json(here, "index", "push", "village")  # mends it
    assert call_json(there, "index", "verify", "village")["num_files"] == len(files)


def test_a_pull_without_tables_reads_the_store_where_the_folder_here_is_damaged(
    here: ProjectPaths, there: ProjectPaths
) -> None:
    call_json(here, "index", "push", "village")
    build_again(there)
    shutil.rmtree(next(there.corpus("village").index.glob("*/words.lance")))
    assert "no such file" in str(refusal(there, "switch", "--corpus", "village"))
    call_json(there, "index", "pull", "village")
    assert call_json(there, *WRITE)["segments"] == call_json(here, *WRITE)["segments"]


def find_table(paths: ProjectPaths) -> str:
    manifest = load_manifest(paths.corpus("village"))
    return f"{manifest.folder}/{next(name for name in manifest.files if 'data' in name)}"


def delete_object(address: str) -> None:
    bucket, _, key = address.removeprefix("s3://").partition("/")
    boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"]).delete_object(
        Bucket=bucket, Key=key
    )


def set_card_uri(paths: ProjectPaths, uri: str) -> None:
    path = paths.card("village")
    write_yaml(path, yaml.safe_load(path.read_text()) | {"index": {"uri": uri}})


def test_the_card_names_the_store_unless_the_variable_does(
    here: ProjectPaths, there: ProjectPaths, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COG_INDEX_URI", "")
    uri = f"s3://{BUCKET}/{tmp_path.name}-card"
    for paths in (here, there):
        set_card_uri(paths, uri + "/")
    digest = call_json(here, "index", "push", "village")["digest"]
    assert call_json(there, "index", "pull", "village")["digest"] == digest
    assert call_json(there, "switch", "--corpus", "village")["to"]["index"] == digest
    assert call_json(there, "status")["intact"]
    wanted, found = call_json(here, *WRITE), call_json(there, *WRITE[:1], *WRITE[3:])
    assert found["segments"] == wanted["segments"]
    assert list(there.corpus("village").index.glob("*")) == []
    other = f"s3://{BUCKET}/{tmp_path.name}-variable"
    monkeypatch.setenv("COG_INDEX_URI", other)
    assert f"{other} must hold village/" in str(refusal(there, "index", "pull", "village"))
    set_card_uri(there, f"{uri}-nothing")
    monkeypatch.setenv("COG_INDEX_URI", uri)
    call_json(there, "index", "pull", "village")


@pytest.mark.slow
def test_dvc_pushes_to_and_pulls_from_a_store(tmp_path: Path, endpoint: str) -> None:
    (tmp_path / "raw.txt").write_text("The mill stands by the river.")
    url = f"s3://{BUCKET}/{tmp_path.name}-dvc"
    for words in (
        ("init", "--no-scm"),
        ("remote", "add", "-d", "store", url),
        ("remote", "modify", "store", "endpointurl", endpoint),
        ("add", "raw.txt"),
        ("push",),
    ):
        run_dvc(tmp_path, *words)
    shutil.rmtree(tmp_path / ".dvc" / "cache")
    (tmp_path / "raw.txt").unlink()
    run_dvc(tmp_path, "pull")
    assert (tmp_path / "raw.txt").read_text() == "The mill stands by the river."


def run_dvc(folder: Path, *words: str) -> None:
    command = [sys.executable, "-m", "dvc", *words, "--quiet"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
