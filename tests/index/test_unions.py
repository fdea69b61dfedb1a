"""Unions of indexes: the halves of a corpus searched as one give what the whole gives."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cog.errors import IndexMismatchError, RegistryError
from cog.index.reader import PhraseIndex, open_index
from cog.index.union_index import UnionIndex
from cog.index.unions import join_manifests, shorten_digest, split_active, split_union
from cog.paths import CorpusPaths
from cog.records import Active
from tests.index.hash_model import PARAMS, HashModel, build, make_documents, write_corpus


def build_part(
    folder: Path, corpus_id: str, numbers: range, changes: dict[str, Any]
) -> PhraseIndex:
    corpus = CorpusPaths(folder / "corpora" / corpus_id)
    documents = make_documents(40)
    write_corpus(corpus, [documents[i] for i in numbers])
    build(corpus, locks=folder / "locks", **changes)
    return open_index(
        corpus,
        locks=folder / "locks",
        corpus_id=corpus_id,
        model_fingerprint=None,
        documents_digest=None,
    )


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[PhraseIndex, UnionIndex]]:
    folder = tmp_path_factory.mktemp("union")
    with ExitStack() as stack:
        whole, first, second = (
            stack.enter_context(build_part(folder, corpus_id, numbers, {}))
            for corpus_id, numbers in (
                ("whole", range(40)),
                ("first", range(15)),
                ("second", range(15, 40)),
            )
        )
        yield whole, UnionIndex([first, second])


def test_union_counts_what_its_parts_hold(indexes: tuple[PhraseIndex, UnionIndex]) -> None:
    whole, union = indexes
    assert union.num_chunks == whole.num_chunks
    assert union.manifest.num_words == whole.manifest.num_words
    assert union.manifest.documents == whole.manifest.documents
    assert union.document_ids() == whole.document_ids()
    assert union.document_licences() == whole.document_licences()
    np.testing.assert_array_equal(union.chunk_documents(), whole.chunk_documents())
    digests = [part.manifest.digest for part in union.parts]
    assert union.manifest.digest == "+".join(digests)
    assert union.manifest.corpus == "first+second"


@pytest.mark.parametrize("top_k", [1, 7, 1000])
@pytest.mark.parametrize("has_rule", [False, True])
def test_union_finds_what_one_index_finds(
    indexes: tuple[PhraseIndex, UnionIndex], top_k: int, has_rule: bool
) -> None:
    whole, union = indexes
    vectors = next(whole.iter_vectors())[::5]
    allowed = np.arange(whole.num_chunks) % 3 != 0 if has_rule else None
    expected = whole.search_neighbours(vectors, top_k=top_k, allowed=allowed)
    found = union.search_neighbours(vectors, top_k=top_k, allowed=allowed)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=0, atol=1e-6)
    for row, wanted, scores in zip(found.rows, expected.rows, expected.scores, strict=True):
        clear = scores > scores[-1] + 1e-6  # ties at the end may be cut in another place
        assert set(row[clear]) == set(wanted[clear])
        if allowed is not None:
            assert allowed[row].all()


def test_union_gathers_what_one_index_gathers(indexes: tuple[PhraseIndex, UnionIndex]) -> None:
    whole, union = indexes
    chunk_ids = np.random.default_rng(0).permutation(whole.num_chunks)
    expected, found = whole.gather_chunks(chunk_ids), union.gather_chunks(chunk_ids)
    for name in expected.__dataclass_fields__:
        if name not in ("word_tokens", "token_ids"):
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), name)
            assert getattr(found, name).flags.c_contiguous
    for word in range(len(expected.word_flags)):
        spans = [chunks.word_tokens[word] for chunks in (expected, found)]
        tokens = [
            chunks.token_ids[a:b].tolist()
            for chunks, (a, b) in zip((expected, found), spans, strict=True)
        ]
        assert tokens[0] == tokens[1]


def test_union_reads_documents_and_names_their_corpus(
    indexes: tuple[PhraseIndex, UnionIndex],
) -> None:
    whole, union = indexes
    ordinals = [0, 14, 15, 39]
    assert union.get_documents(ordinals) == whole.get_documents(ordinals)
    assert [union.get_corpus_id(i) for i in ordinals] == ["first", "first", "second", "second"]
    for call in (union.get_documents, lambda x: union.get_corpus_id(x[0])):
        with pytest.raises(ValueError, match="positions must be"):
            call([40])


def test_gather_of_nothing_and_of_one_part(indexes: tuple[PhraseIndex, UnionIndex]) -> None:
    _, union = indexes
    assert len(union.gather_chunks(np.zeros(0, dtype=np.int64)).word_flags) == 0
    last = np.array([union.num_chunks - 1])
    assert union.gather_chunks(last).document_ordinals.tolist() == [39]


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
    with (
        build_part(tmp_path, "first", range(3), {}) as first,
        build_part(tmp_path, "second", range(3, 6), changes) as second,
        pytest.raises(IndexMismatchError, match=f"{what}.*cog index build second --force"),
    ):
        join_manifests([first.manifest, second.manifest])


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
