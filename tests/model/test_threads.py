"""Threads: operations run on one, and are restored; vectors do not depend on their batch."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from cog.index.building.encoding import Encoders
from cog.model.load import load_index_model
from cog.model.threads import (
    MAX_PACED,
    PROBE_PASSES,
    PaceSetter,
    describe_numerics,
    pin_threads,
    start_single_threads,
)


def test_threads_are_pinned_and_restored() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with pin_threads(torch.device("cpu")) as num_workers:
            assert (num_workers, torch.get_num_threads()) == (2, 1)
        assert torch.get_num_threads() == 2
        with pytest.raises(KeyError), pin_threads(torch.device("cpu")):
            raise KeyError
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_threads_that_begin_later_use_as_many_cores_as_before() -> None:
    before = torch.get_num_threads()
    product = torch.ones(8, 8)

    def count() -> int:
        torch.mm(product, product)  # torch settles a thread's number at its first product
        return torch.get_num_threads()

    try:
        torch.set_num_threads(3)
        with start_single_threads(2, "single") as single, ThreadPoolExecutor(1) as later:
            assert {single.submit(count).result() for _ in range(8)} == {1}
            assert later.submit(count).result() == 3
        assert count() == 3
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("faster", [1, 3])
def test_passes_run_on_the_number_of_threads_that_is_faster(faster: int) -> None:
    before, seen, now = torch.get_num_threads(), [], [0.0]
    pace = PaceSetter(clock=lambda: now[0])

    def run_pass() -> torch.Tensor:
        seen.append(torch.get_num_threads())
        now[0] += 1.0 if seen[-1] == faster else 2.0
        return torch.ones(1)

    try:
        torch.set_num_threads(3)
        for _ in range(2 * PROBE_PASSES):
            pace.run("read", 5, run_pass)
        assert torch.get_num_threads() == 3
        assert seen[:2] == [3, 1]  # the first is run on both
        assert seen[2:].count(4 - faster) == 1  # and the slower tried again, in case that changed
        pace.run("read", 9, run_pass)
        assert seen[-2:] == [3, 1]  # passes of another size are known by themselves
        pace.run("read", MAX_PACED + 1, run_pass)
        assert seen[-2:] == [1, 3]
        torch.set_num_threads(1)
        pace.run("read", 5, run_pass)
        assert seen[-1] == 1
        torch.set_num_threads(3)
        with pytest.raises(KeyError):
            pace.run("read", 17, {}.popitem)
    finally:
        torch.set_num_threads(before)


def test_passes_that_another_number_of_threads_changes_run_on_all() -> None:
    before, pace = torch.get_num_threads(), PaceSetter()

    def run_pass() -> torch.Tensor:
        return torch.tensor(torch.get_num_threads())

    try:
        torch.set_num_threads(3)
        assert {int(pace.run("read", 5, run_pass)) for _ in range(2 * PROBE_PASSES)} == {3}
        assert int(pace.run("read", 9, run_pass)) == 3
    finally:
        torch.set_num_threads(before)


def test_numerics_name_device_and_library() -> None:
    assert describe_numerics(torch.device("cpu")).startswith("cpu ")
    assert torch.__version__.split("+")[0] in describe_numerics(torch.device("cpu"))


def test_encoders_give_the_same_vectors_alone_and_in_a_batch(tiny_model: Path) -> None:
    model = load_index_model(tiny_model)
    texts = [f"the {word} of the village" for word in ("mill", "baker", "market", "river")]
    spans = [np.array([[0, 3], [4, 8], [9, 11], [12, 15]], dtype=np.int32)] * len(texts)
    with model.pin_threads():
        encoders = Encoders(model.phrase_encoder, model.retriever, "int8")
        is_proof = encoders.measure_batch_change() == 0.0
        together = model.phrase_encoder.encode_chunks(texts, spans)
        vectors = model.retriever.encode_texts(texts)
        for k, text in enumerate(texts):
            (alone,) = model.phrase_encoder.encode_chunks([text], spans[k : k + 1])
            for one, other in (
                (alone.start, together[k].start),
                (alone.end, together[k].end),
                (model.retriever.encode_texts([text])[0], vectors[k]),
            ):
                # to the last bit where the processor is found to be so; builds rest on it
                np.testing.assert_allclose(one, other, rtol=0.0, atol=0.0 if is_proof else 1e-5)


def test_a_few_words_alone_have_the_vectors_of_a_batch(tiny_model: Path) -> None:
    # few rows are multiplied by other kernels of a processor
    model = load_index_model(tiny_model)
    encoders = Encoders(model.phrase_encoder, model.retriever, "int8")
    with model.pin_threads():
        is_proof = encoders.measure_batch_change() == 0.0  # builds rest on what it says
        atol = 0.0 if is_proof else 1e-5
        for num_words in (1, 2, 3, 4, 5, 9):
            text = "mill" + " stone" * (num_words - 1)
            spans = np.array([[0, 4], *([5 + 6 * k, 10 + 6 * k] for k in range(num_words - 1))])
            (alone,) = model.phrase_encoder.encode_chunks([text], [spans])
            together = model.phrase_encoder.encode_chunks([text] * 30, [spans] * 30)
            for each in (together[0], together[-1]):
                np.testing.assert_allclose(each.start, alone.start, rtol=0.0, atol=atol)
                np.testing.assert_allclose(each.end, alone.end, rtol=0.0, atol=atol)
            vectors = model.retriever.encode_texts([text] * 30)
            one = model.retriever.encode_texts([text])[0]
            np.testing.assert_allclose(one, vectors[0], rtol=0.0, atol=atol)


def test_retriever_counts_pieces_as_it_reads_them(tiny_model: Path) -> None:
    retriever = load_index_model(tiny_model).retriever
    assert retriever.count_pieces(["the river", "", "the " * 500]).tolist() == [4, 2, 128]
