"""Unions of indexes: parts searched as one give what one index of all gives."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cog.errors import IndexMismatchError, RegistryError
from cog.index.read.reader import PhraseIndex, open_index
from cog.index.versions.unions import shorten_digest, split_active, split_union
from cog.paths import CorpusPaths
from cog.records import Active
from tests.index.hash_model import PARAMS, HashModel, build, make_documents, write_corpus


def build_part(
    folder: Path, corpus_id: str, numbers: Iterable[int], changes: dict[str, Any]
) -> CorpusPaths:
    corpus = CorpusPaths(folder / "corpora" / corpus_id)
    documents = make_documents(40)
    write_corpus(corpus, [documents[i] for i in numbers])
    build(corpus, **changes)
    return corpus


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[PhraseIndex, PhraseIndex]]:
    folder = tmp_path_factory.mktemp("union")
    # the last part holds texts of the first again, so that scores tie
    numbers = {"first": range(15), "second": range(15, 40), "third": range(3, 9)}
    parts = [build_part(folder, name, each, {}) for name, each in numbers.items()]
    joined = [number for each in numbers.values() for number in each]
    documents = make_documents(40)
    whole = CorpusPaths(folder / "corpora" / "whole")
    ids = [f"{place}-{number}" for place, number in enumerate(joined)]
    write_corpus(
        whole,
        [replace(documents[i], document_id=name) for i, name in zip(joined, ids, strict=True)],
    )
    build(whole)
    with open_index(whole) as one, open_index(*parts) as union:
        yield one, union


def test_union_counts_what_its_parts_hold(indexes: tuple[PhraseIndex, PhraseIndex]) -> None:
    whole, union = indexes
    assert union.num_chunks == whole.num_chunks
    assert union.num_words == whole.num_words
    assert union.num_documents == whole.num_documents == 46
    found = union.get_documents(range(12, 17))
    assert [found[i].document_id for i in range(12, 17)] == [f"document-{i}" for i in range(12, 17)]
    assert union.count_licences() == whole.count_licences()
    np.testing.assert_array_equal(union.chunk_documents(), whole.chunk_documents())
    assert union.digest == "+".join(part.manifest.digest for part in union.parts)
    assert union.corpus == "first+second+third"


@pytest.mark.parametrize("top_k", [1, 7, 1000])
@pytest.mark.parametrize("has_rule", [False, True])
def test_union_finds_what_a_loop_over_all_chunks_finds(
    indexes: tuple[PhraseIndex, PhraseIndex], top_k: int, has_rule: bool
) -> None:
    _, union = indexes
    stored = np.concatenate([block for part in union.parts for block in part.iter_vectors()])
    vectors = stored[::5]
    allowed = union.chunk_documents() % 3 != 0 if has_rule else np.ones(len(stored), bool)
    rule = union.allow(union.count_licences(), excluded=range(0, union.num_documents, 3))
    found = union.search_chunks(vectors, top_k=top_k, allowed=rule if has_rule else None)
    scores = vectors.astype(np.float64) @ stored.T.astype(np.float64)
    scores[:, ~allowed] = -np.inf
    for row, values, exact in zip(found.rows, found.scores, scores, strict=True):
        wanted = np.sort(exact)[::-1][: min(top_k, allowed.sum())]
        np.testing.assert_allclose(values, wanted, rtol=0, atol=1e-6)
        np.testing.assert_allclose(exact[row], values, rtol=0, atol=1e-6)
        assert len(set(row.tolist())) == len(row)
        places = np.searchsorted(union._first_chunks, row, side="right")
        ties = np.diff(values) == 0
        assert (np.diff(places)[ties] >= 0).all()  # of equal scores the part named first is first


def test_union_gathers_what_one_index_gathers(indexes: tuple[PhraseIndex, PhraseIndex]) -> None:
    whole, union = indexes
    chunk_ids = np.random.default_rng(0).permutation(whole.num_chunks)
    expected, found = whole.gather_chunks(chunk_ids), union.gather_chunks(chunk_ids)
    for name in expected.__dataclass_fields__.keys() - {"codes"}:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), name)
        assert getattr(found, name).flags.c_contiguous


def test_union_reads_documents_and_names_their_corpus(
    indexes: tuple[PhraseIndex, PhraseIndex],
) -> None:
    whole, union = indexes
    ordinals = [0, 14, 15, 39, 40, 45]
    texts = [whole.get_documents([i])[i].text for i in ordinals]
    assert [each.text for each in union.get_documents(ordinals).values()] == texts
    names = ["first", "first", "second", "second", "third", "third"]
    assert [union.get_corpus_id(i) for i in ordinals] == names
    for call in (union.get_documents, lambda x: union.get_corpus_id(x[0])):
        with pytest.raises(ValueError, match="ordinals must be"):
            call([46])


def test_gather_of_nothing_and_of_one_part(indexes: tuple[PhraseIndex, PhraseIndex]) -> None:
    _, union = indexes
    assert len(union.gather_chunks(np.zeros(0, dtype=np.int64)).word_flags) == 0
    last = np.array([union.num_chunks - 1])
    assert union.gather_chunks(last).document_ordinals.tolist() == [45]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"model": HashModel(fingerprint="b" * 64)}, "same model"),
        ({"params": replace(PARAMS, vector_dtype="float16")}, "same vectors"),
    ],
)
def test_indexes_that_do_not_fit_are_refused(
    tmp_path: Path, changes: dict[str, Any], what: str
) -> None:
    places = [
        build_part(tmp_path, "first", range(3), {}),
        build_part(tmp_path, "second", range(3, 6), changes),
    ]
    with pytest.raises(IndexMismatchError, match=f"{what}.*cog index build second --force"):
        open_index(*places)
    build(places[0], force=True)  # nothing was left locked


def test_ids_of_unions() -> None:
    assert split_union("wiki-mini") == ("wiki-mini",)
    assert split_union("wiki-mini+eu-law-mini") == ("wiki-mini", "eu-law-mini")
    for wrong in ("a+a", "a+b+a", "a+", "+a", "a++b", "a + b"):
        with pytest.raises(RegistryError):
            split_union(wrong)
    active = Active("a+b", "12+34", "model", "now")
    assert split_active(active) == {"a": "12", "b": "34"}
    with pytest.raises(RegistryError, match="one index for each"):
        split_active(Active("a+b", "12", "model", "now"))
    assert shorten_digest("abcdef+123456", 3) == "abc+123"
