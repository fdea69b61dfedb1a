"""An index with lists on an object store: what a prompt asks it for, and stores that refuse."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import moto.settings
import numpy as np
import pytest

from cog.errors import IndexingError
from cog.index.read.reader import PhraseIndex, open_index
from cog.index.read.verify import verify_index
from cog.index.search.contexts import CONTEXTS
from cog.index.tables.word_counts import WORD_COUNTS
from cog.index.versions.remote import push_index
from cog.paths import ProjectPaths
from cog.progress import SilentProgress
from tests.index.hash_model import PARAMS, HashRetriever, build, make_documents, write_corpus
from tests.index.versions.s3_server import S3Server, serve_s3

NUM_CHUNKS = 64  # that are gathered
REQUESTS_PER_LIST = 2


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with serve_s3() as serving:
        yield serving


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> ProjectPaths:
    paths = ProjectPaths(tmp_path_factory.mktemp("built"))
    documents = [
        replace(each, licence="MIT" if number % 4 == 0 else each.licence)
        for number, each in enumerate(make_documents(300))
    ]
    write_corpus(paths.corpus("hamlet"), documents)
    params = replace(PARAMS, ivf_threshold_rows=100, min_recall=0.3)
    build(paths.corpus("hamlet"), params=params)
    return paths


@pytest.fixture
def stored(
    server: S3Server, built: ProjectPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PhraseIndex]:
    """The index, read where it was pushed to."""
    for name, value in server.set_access(tmp_path.name).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("COG_CACHE", str(tmp_path / "cache"))
    push_index(built, "hamlet", progress=SilentProgress())
    there = ProjectPaths(tmp_path / "there").corpus("hamlet")
    there.root.mkdir(parents=True)
    there.manifest.write_bytes(built.corpus("hamlet").manifest.read_bytes())
    with open_index(there) as index:
        yield index


def test_lists_are_read_where_they_lie(
    stored: PhraseIndex, built: ProjectPaths, tmp_path: Path
) -> None:
    vectors = HashRetriever().encode_texts(["river house", "glass"])
    with open_index(built.corpus("hamlet")) as here:
        assert not here.parts[0].is_remote
        for index in (here, stored):
            allowed = index.allow(["MIT"], excluded=[4])
            found = index.search_chunks(vectors, top_k=20, allowed=allowed).rows.tolist()
            plain = index.search_chunks(vectors, top_k=20).rows.tolist()
            if index is here:
                wanted = found, plain
    assert stored.parts[0].is_remote
    assert (found, plain) == wanted
    verify_index(stored, progress=SilentProgress())
    (folder,) = (tmp_path / "cache" / "indexes").iterdir()
    assert {path.name for path in folder.iterdir()} == {WORD_COUNTS, CONTEXTS.rstrip("/")}


def test_a_prompt_asks_for_its_lists_and_chunks_and_nothing_else(
    stored: PhraseIndex, server: S3Server
) -> None:
    vectors = HashRetriever().encode_texts(["river house", "stone glass wheel"])
    stored.search_chunks(vectors[:1], top_k=NUM_CHUNKS)
    stored.gather_chunks(np.arange(0, 64, 2))  # where rows lie is known from here on
    server.requests.take()
    rows = np.sort(stored.search_chunks(vectors[1:], top_k=NUM_CHUNKS).rows[0])
    search = stored.parts[0].manifest.search
    probes = max(search.num_probes, -(-search.num_lists * NUM_CHUNKS // search.num_rows) * 2)
    assert len(server.requests.take()) <= REQUESTS_PER_LIST * 2 * probes
    gathered = stored.gather_chunks(rows)
    assert len(gathered.chunk_ids) == NUM_CHUNKS
    lines = server.requests.take()
    assert all("words.lance" in line for line in lines)
    # columns are read together where they lie near each other, and so are chunks
    assert len(lines) <= NUM_CHUNKS
    stored.get_documents(gathered.document_ordinals[:8].tolist())
    assert len(server.requests.take()) <= 20


@pytest.mark.parametrize("part", ["_indices", "words.lance/data"])
def test_what_vanished_is_one_line(stored: PhraseIndex, server: S3Server, part: str) -> None:
    assert server.delete(part)
    wanted = r"must hold all of the index of hamlet; found: [Nn]ot found.*index push hamlet"
    with pytest.raises(IndexingError, match=wanted) as caught:
        stored.gather_chunks(stored.search_chunks(np.ones((1, 12), np.float32), top_k=3).rows[0])
    assert "\n" not in str(caught.value)


def test_a_store_that_refuses_is_one_line(
    stored: PhraseIndex,
    built: ProjectPaths,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(moto.settings, "INITIAL_NO_AUTH_ACTION_COUNT", 0)
    wanted = r"must be open to whoever uses .*the store refuses \((403 Forbidden|ACCESS_DENIED)\)"
    for work in (
        lambda: stored.get_documents([1]),
        lambda: stored.search_chunks(np.ones((1, 12), np.float32), top_k=3),
        lambda: push_index(built, "hamlet", progress=SilentProgress()),
    ):
        with pytest.raises(IndexingError, match=wanted) as caught:
            work()
        assert "AWS_ACCESS_KEY_ID" in caught.value.run


def test_a_bucket_that_is_not_there_is_one_line(
    built: ProjectPaths, server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in server.set_access(tmp_path.name).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("COG_INDEX_URI", "s3://elsewhere/x")
    there = ProjectPaths(tmp_path / "there").corpus("hamlet")
    there.root.mkdir(parents=True)
    there.manifest.write_bytes(built.corpus("hamlet").manifest.read_bytes())
    with pytest.raises(IndexingError, match=r"s3://elsewhere/x must hold .*404 Not Found"):
        open_index(there)
