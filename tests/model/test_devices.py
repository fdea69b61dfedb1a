"""A model on a device against the same model on the processor, and batches that do not fit."""

import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models

from cog.errors import CheckpointError
from cog.index.building.encoding import Encoders
from cog.model.load import load_index_model, load_model
from cog.model.pieces import PieceReader
from tests.devices import DEVICES
from tests.model_fixtures import TEXTS, make_tiny_model

IDS = [[3, 17, 40, 41, 42, 99, 7, 8], [5], list(range(1, 60))]


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model"), architecture=request.param)


@pytest.mark.parametrize("device", DEVICES)
def test_a_prefix_is_read_alike(folder: Path, device: str) -> None:
    found = []
    for each in ("cpu", device):
        encoder = load_model(folder, device=each).prefix_encoder
        assert encoder.device.type == each
        cache = encoder.new_cache(batch=len(IDS), capacity=4)
        encoder.append(cache, [ids[:1] for ids in IDS])
        states = encoder.append_last(cache, [ids[1:] or ids for ids in IDS])
        logits = encoder.token_logits(states)
        start, end = encoder.phrase_queries(states)
        found.append([part.cpu() for part in (states, logits, start, end)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("device", DEVICES)
def test_chunks_are_encoded_alike_and_a_batch_moves_no_more_than_is_allowed(
    folder: Path, device: str
) -> None:
    spans = [np.array([[0, 3], [4, 8]], dtype=np.int32)] * len(TEXTS)
    plain, model = load_index_model(folder), load_index_model(folder, device=device)
    with model.pin_threads():
        change = Encoders(model.phrase_encoder, model.retriever, "int8").measure_batch_change()
        found = model.phrase_encoder.encode_chunks(TEXTS, spans)
        wanted = plain.phrase_encoder.encode_chunks(TEXTS, spans)
        vectors = model.retriever.encode_texts(TEXTS)
        np.testing.assert_allclose(vectors, plain.retriever.encode_texts(TEXTS), atol=1e-4)
    assert change <= (model.batch_tolerance or 1e-5)  # a processor may have to encode them alone
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one.start, other.start, atol=1e-4)
        np.testing.assert_allclose(one.end, other.end, atol=1e-4)


class Crowded:
    """A network on a device that has memory for a few texts only."""

    dim, device, max_positions = 3, torch.device("cpu"), None

    def __init__(self, room: int) -> None:
        self.room = room
        self.sizes: list[int] = []

    def __call__(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        self.sizes.append(len(ids))
        if len(ids) > self.room:
            raise torch.OutOfMemoryError
        return (ids * mask).unsqueeze(-1).expand(-1, -1, self.dim).float()


def make_reader(network: Crowded) -> PieceReader:
    return PieceReader(network, Tokenizer(models.BPE()), max_pieces=4)


def test_a_batch_that_does_not_fit_is_halved_and_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ids = torch.arange(44).view(11, 4)
    network = Crowded(3)
    reader = make_reader(network)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            states = reader.read(ids, torch.ones_like(ids))
            assert torch.equal(states, ids.unsqueeze(-1).expand(-1, -1, 3).float())
    assert network.sizes == [11, 5, *[2] * 5, 1, *[2] * 5, 1]
    assert [record.message for record in caplog.records] == [
        "the device is out of memory: half as many texts at a time from now on"
    ]


def test_a_text_that_does_not_fit_is_refused() -> None:
    ids = torch.zeros(3, 4, dtype=torch.long)
    with pytest.raises(CheckpointError, match="room for one text; found: out of memory; next"):
        make_reader(Crowded(0)).read(ids, ids)
