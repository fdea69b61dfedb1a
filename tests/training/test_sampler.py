from typing import Any

import numpy as np
import pytest

from cog.training.sampler import BatchSampler, SamplerSettings, split_documents

NUM = 60
DOCUMENTS = np.repeat(np.arange(20, dtype=np.int32), 3)


def make_vectors() -> np.ndarray:
    vectors = np.random.default_rng(0).normal(size=(NUM, 8)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def make_sampler(*, chunks: np.ndarray, size: int, seeds: int, near: bool = True) -> BatchSampler:
    settings = SamplerSettings(num_chunks=size, num_seeds=seeds, max_of_document=2, seed=5)
    return BatchSampler(
        chunks, DOCUMENTS[chunks], make_vectors() if near else None, settings=settings
    )


def test_neighbours_are_those_of_a_plain_search() -> None:
    chunks = np.setdiff1d(np.arange(NUM), [4, 5, 6])
    drawn = make_sampler(chunks=chunks, size=8, seeds=1).draw(3)
    seed = int(drawn[0])
    vectors = make_vectors()
    wanted, counts = [seed], {DOCUMENTS[seed]: 1}
    for chunk in sorted(chunks.tolist(), key=lambda c: -float(vectors[c] @ vectors[seed])):
        document = DOCUMENTS[chunk]
        if chunk != seed and counts.get(document, 0) < 2 and len(wanted) < 8:
            wanted.append(chunk)
            counts[document] = counts.get(document, 0) + 1
    assert drawn.tolist() == wanted


class CountingVectors(np.ndarray):
    """Vectors that count how often all of them are gone through."""

    num_scans = 0

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **given: Any) -> Any:  # noqa: ANN401
        CountingVectors.num_scans += ufunc is np.matmul
        return getattr(ufunc, method)(*(np.asarray(each) for each in inputs), **given)


def test_vectors_are_gone_through_once_a_batch_whatever_the_number_of_seeds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = SamplerSettings(num_chunks=24, num_seeds=6, max_of_document=2, seed=5)
    chunks, vectors = np.arange(NUM), make_vectors().view(CountingVectors)
    sampler = BatchSampler(chunks, DOCUMENTS, vectors, settings=settings)
    drawn = sampler.draw(0)
    assert CountingVectors.num_scans == 1
    monkeypatch.setattr("cog.training.sampler.MAX_SIMILARITIES", 2 * NUM)  # two seeds at a time
    assert sampler.draw(0).tolist() == drawn.tolist()
    assert CountingVectors.num_scans == 1 + 3


@pytest.mark.parametrize("near", [True, False])
@pytest.mark.parametrize(("size", "seeds"), [(16, 2), (16, 16), (100, 3), (7, 7)])
def test_batch_holds_allowed_chunks_once(near: bool, size: int, seeds: int) -> None:
    chunks = np.arange(10, NUM)
    sampler = make_sampler(chunks=chunks, size=size, seeds=seeds, near=near)
    for number in range(12):
        drawn = sampler.draw(number)
        assert len(drawn) == min(size, len(chunks)) == len(set(drawn.tolist()))
        assert set(drawn.tolist()) <= set(chunks.tolist())


def test_batch_depends_on_its_number_alone() -> None:
    chunks = np.arange(NUM)
    first = make_sampler(chunks=chunks, size=8, seeds=2)
    forwards = [first.draw(number).tolist() for number in range(40)]
    second = make_sampler(chunks=chunks, size=8, seeds=2)
    backwards = [second.draw(number).tolist() for number in reversed(range(40))]
    assert forwards == backwards[::-1]
    assert forwards[0] != forwards[1]


def test_every_chunk_is_a_seed_once_in_a_pass() -> None:
    sampler = make_sampler(chunks=np.arange(NUM), size=6, seeds=6, near=False)
    seen = np.concatenate([sampler.draw(number) for number in range(NUM // 6)])
    assert sorted(seen.tolist()) == list(range(NUM))
    again = np.concatenate([sampler.draw(number + NUM // 6) for number in range(NUM // 6)])
    assert sorted(again.tolist()) == list(range(NUM))
    assert again.tolist() != seen.tolist()


def test_whole_documents_are_set_aside() -> None:
    train, held_out = split_documents(DOCUMENTS, num_held_out=3, seed=0)
    assert len(set(DOCUMENTS[held_out])) == 3
    assert not set(DOCUMENTS[held_out]) & set(DOCUMENTS[train])
    assert sorted([*train, *held_out]) == list(range(NUM))
    nothing = split_documents(DOCUMENTS, num_held_out=0, seed=0)
    assert len(nothing[0]) == NUM
    assert len(nothing[1]) == 0
