"""Compact vectors: what a build stores, reads back, reuses, verifies, and refuses."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cog.errors import IndexMismatchError
from cog.index.read.reader import open_index
from cog.index.read.verify import verify_index
from cog.index.tables.gather import join_chunks, sort_chunks
from cog.model.vector_code import VECTOR_CODES, VectorCodes, fit_code, load_codes
from cog.paths import CorpusPaths
from cog.progress import SilentProgress
from tests.index.hash_model import (
    PARAMS,
    VOCABULARY,
    HashModel,
    build,
    embed_words,
    make_documents,
    write_corpus,
)

COMPACT = replace(PARAMS, vector_dtype="compact")


def fit(seed: int = 0) -> VectorCodes:
    words = [*VOCABULARY, *(f"{word}{i}." for word in VOCABULARY for i in range(20))]
    queries = np.random.default_rng(seed).normal(size=(300, 8)).astype(np.float32)
    start, end = (
        fit_code(embed_words(words, dim=8, salt=salt), queries, num_bytes=4) for salt in (1, 2)
    )
    return VectorCodes(start, end)


def test_compact_build_reads_back_the_integers_of_its_code(corpus: CorpusPaths) -> None:
    codes = fit()
    exact = build(corpus, params=replace(PARAMS, vector_dtype="float16"))
    with open_index(corpus) as index:
        wanted = index.gather_chunks(np.arange(index.num_chunks))
    manifest = build(corpus, params=COMPACT, get_codes=lambda: codes).manifest
    assert manifest.vectors.bytes_per_word == 8
    assert manifest.vectors.codes == codes.digest()
    assert manifest.digest != exact.manifest.digest
    with open_index(corpus) as index:
        verify_index(index, progress=SilentProgress())
        order = np.random.default_rng(0).permutation(index.num_chunks)
        found = index.gather_chunks(order)
        assert found.codes is not None
        again = sort_chunks([found])
        for integers, code, vectors in (
            (again.start_vectors, codes.start, wanted.start_vectors),
            (again.end_vectors, codes.end, wanted.end_vectors),
        ):
            # float16 may round a value over the edge of its step
            apart = np.abs(integers - code.quantise(vectors.astype(np.float32)))
            assert apart.max() <= 1
            assert apart.mean() < 0.01
        assert (found.start_scales == 1).all()
        joined = join_chunks([index.gather_chunks(order[:5]), index.gather_chunks(order[5:])])
        assert np.array_equal(joined.start_vectors, found.start_vectors)
        assert joined.codes is found.codes
        nearest = index.search_chunks(next(index.parts[0].iter_vectors()), top_k=1).rows
        assert nearest[:, 0].tolist() == list(range(index.num_chunks))


def test_compact_vectors_are_reused_where_the_code_is_the_same(corpus: CorpusPaths) -> None:
    first = build(corpus, params=COMPACT, get_codes=fit).manifest
    write_corpus(corpus, make_documents(40)[1:])
    second = build(corpus, params=COMPACT, get_codes=fit).manifest
    assert second.num_encoded == 0 < first.num_encoded
    third = build(corpus, params=COMPACT, get_codes=lambda: fit(seed=1), force=False).manifest
    assert third.digest == second.digest  # in place already
    write_corpus(corpus, make_documents(40)[2:])
    other = build(corpus, params=COMPACT, get_codes=lambda: fit(seed=1)).manifest
    assert other.num_encoded == other.num_chunks
    assert other.vectors.codes != first.vectors.codes


def refuse(corpus: CorpusPaths, *, match: str) -> None:
    with (
        open_index(corpus) as index,
        pytest.raises(IndexMismatchError, match=match),
    ):
        index.gather_chunks(np.arange(2))


def test_damaged_and_foreign_codes_are_refused(corpus: CorpusPaths) -> None:
    manifest = build(corpus, params=COMPACT, get_codes=fit).manifest
    folder = corpus.index / manifest.folder
    assert load_codes(folder).digest() == manifest.vectors.codes
    fit(seed=1).save(folder)
    refuse(corpus, match="codes of vectors")
    (folder / VECTOR_CODES).write_bytes(bytes((folder / VECTOR_CODES).stat().st_size))
    refuse(corpus, match="readable codes")


def test_indexes_of_other_codes_are_not_joined(tmp_path: Path) -> None:
    places = []
    for name, seed in (("one", 0), ("two", 1)):
        place = CorpusPaths(tmp_path / "corpora" / name)
        write_corpus(place, make_documents(10))
        model = HashModel()
        build(place, model=model, params=COMPACT, get_codes=lambda s=seed: fit(s))
        places.append(place)
    with pytest.raises(IndexMismatchError, match="the same codes of vectors"):
        open_index(*places)
