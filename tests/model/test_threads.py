"""Threads: operations run on one, and are restored; vectors do not depend on their batch."""

from pathlib import Path

import pytest
import torch

from cog.index.encoding import is_batch_proof
from cog.model.load import load_index_model
from cog.model.threads import describe_numerics, pin_threads


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


def test_numerics_name_device_and_library() -> None:
    assert describe_numerics(torch.device("cpu")).startswith("cpu ")
    assert torch.__version__.split("+")[0] in describe_numerics(torch.device("cpu"))


def test_encoders_give_the_same_bytes_alone_and_in_a_batch(tiny_model: Path) -> None:
    model = load_index_model(tiny_model)
    with model.pin_threads():
        assert is_batch_proof(model.phrase_encoder, model.retriever)


def test_retriever_counts_pieces_as_it_reads_them(tiny_model: Path) -> None:
    retriever = load_index_model(tiny_model).retriever
    assert retriever.count_pieces(["the river", "", "the " * 500]).tolist() == [4, 2, 128]
