"""The adapter: gates at zero change nothing, the future changes no past, and a plain loop."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from cog.baselines.retro.adapter import (
    CrossAttention,
    Memory,
    RetroAdapter,
    RetroConfig,
    get_chunk,
)
from cog.baselines.retro.generator import RetroGenerator, RetroLoop
from cog.baselines.retro.neighbours import NeighbourSource
from cog.baselines.transformer import TransformerGenerator
from cog.decoding.request import Request
from cog.errors import GenerationError
from cog.index.reader import PhraseIndex
from cog.model.load import CogModel
from cog.records import Decoding

CONFIG = RetroConfig(
    dim=16,
    num_heads=2,
    chunk_tokens=4,
    num_neighbours=2,
    neighbour_tokens=12,
    continuation_tokens=6,
    cross_layers=(0, 1),
    encoder_layers=1,
)
NUCLEUS = Decoding("nucleus", 0.95, 0, 14, 16, 0.0)
REQUESTS = [
    Request(prefix, NUCLEUS)
    for prefix in ("The mill", "A bridge over the river and a house by the mill", "")
]


def make_adapter(*, is_open: bool) -> RetroAdapter:
    torch.manual_seed(0)
    adapter = RetroAdapter(CONFIG)
    if is_open:
        for layer in adapter.cross.values():
            nn.init.constant_(layer.gate, 2.0)
    return adapter


@pytest.mark.parametrize(("position", "chunk"), [(0, -1), (2, -1), (3, 0), (6, 0), (7, 1)])
def test_the_last_token_of_a_chunk_is_the_first_to_see_its_neighbours(
    position: int, chunk: int
) -> None:
    assert get_chunk(position, chunk_tokens=4) == chunk


def test_with_gates_at_zero_it_writes_what_the_base_model_writes(
    tiny_cog_model_alone: CogModel, village_index: PhraseIndex
) -> None:
    plain = TransformerGenerator(tiny_cog_model_alone, corpus_id="village").generate(REQUESTS)
    closed = RetroGenerator(
        tiny_cog_model_alone, village_index, adapter=make_adapter(is_open=False)
    ).generate(REQUESTS)
    assert [each.segments for each in closed] == [each.segments for each in plain]


def test_open_gates_change_the_text_and_a_batch_is_as_each_text_alone(
    tiny_cog_model_alone: CogModel, village_index: PhraseIndex
) -> None:
    plain = TransformerGenerator(tiny_cog_model_alone, corpus_id="village").generate(REQUESTS)
    retro = RetroGenerator(tiny_cog_model_alone, village_index, adapter=make_adapter(is_open=True))
    together = retro.generate(REQUESTS)
    alone = [retro.generate([request])[0] for request in REQUESTS]
    assert [each.text for each in together] == [each.text for each in alone]
    assert [each.text for each in together] != [each.text for each in plain]
    assert together[0].seconds["retrieve"] > 0


def test_one_pass_equals_token_by_token(
    tiny_cog_model_alone: CogModel, village_index: PhraseIndex
) -> None:
    source = NeighbourSource(village_index, tiny_cog_model_alone.retriever, config=CONFIG)
    loop = RetroLoop(tiny_cog_model_alone, make_adapter(is_open=True), source)
    ids = tiny_cog_model_alone.splitter.encode("The mill by the river and the bridge").tolist()
    encoder = tiny_cog_model_alone.prefix_encoder
    loop.begin(1)
    whole = loop.append_last(encoder.new_cache(batch=1, capacity=64), [ids])
    loop.begin(1)
    cache = encoder.new_cache(batch=1, capacity=64)
    for token in ids:
        last = loop.append_last(cache, [[token]])
    torch.testing.assert_close(last, whole, rtol=1e-4, atol=1e-5)


def test_a_change_in_a_later_chunk_changes_no_earlier_logit(
    tiny_cog_model_alone: CogModel, village_index: PhraseIndex
) -> None:
    source = NeighbourSource(village_index, tiny_cog_model_alone.retriever, config=CONFIG)
    loop = RetroLoop(tiny_cog_model_alone, make_adapter(is_open=True), source)
    encoder = tiny_cog_model_alone.prefix_encoder
    first = tiny_cog_model_alone.splitter.encode("The mill by the river is old").tolist()[:7]
    states = []
    for ending in ("a bridge and a garden", "cold water in the well of the church"):
        rest = tiny_cog_model_alone.splitter.encode(ending).tolist()[:6]
        loop.begin(1)
        assert loop.memory is not None
        loop._adapter.set_memory(loop.memory.read([first + rest]))
        states.append(encoder.append(encoder.new_cache(batch=1, capacity=64), [first + rest]))
        loop._adapter.set_memory(None)
    torch.testing.assert_close(states[0][: len(first)], states[1][: len(first)])
    assert not torch.allclose(states[0][-1], states[1][-1])


def test_cross_attention_equals_a_plain_loop() -> None:
    torch.manual_seed(1)
    layer = CrossAttention(8, 2)
    nn.init.constant_(layer.gate, 0.7)
    hidden, states = torch.randn(5, 8), torch.randn(3, 4, 8)
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]], dtype=torch.bool)
    owners = torch.tensor([1, -1, 0, 1, 1])
    found = layer(hidden, Memory(states, mask, owners))
    for token, owner in enumerate(owners.tolist()):
        if owner < 0:
            assert (found[token] == 0).all()
            continue
        query = layer.query(layer.norm(hidden[token]))
        keys, values = layer.key_value(states[owner][mask[owner]]).chunk(2, dim=-1)
        heads = []
        for head in range(2):
            part = slice(4 * head, 4 * head + 4)
            weights = torch.softmax(keys[:, part] @ query[part] / 2.0, dim=0)
            heads.append(weights @ values[:, part])
        wanted = torch.tanh(layer.gate) * layer.output(torch.cat(heads))
        torch.testing.assert_close(found[token], wanted, rtol=1e-5, atol=1e-6)


def test_neighbours_of_the_left_out_document_do_not_count(
    tiny_cog_model_alone: CogModel, village_index: PhraseIndex
) -> None:
    source = NeighbourSource(village_index, tiny_cog_model_alone.retriever, config=CONFIG)
    chunk = source._read_tokens(np.array([0]))[0]
    own, text = chunk[:6].tolist(), tiny_cog_model_alone.splitter.decode(chunk).decode()
    with_own = source.find([text])
    without = source.find([text], left_out=[0])
    assert with_own.token_ids[0, 0, :6].tolist() == own
    assert all(row[:6].tolist() != own for row in without.token_ids[0])


def test_a_neighbour_is_followed_by_its_continuation(
    tiny_cog_model_alone: CogModel, village_index: PhraseIndex
) -> None:
    wide = replace(CONFIG, neighbour_tokens=200, continuation_tokens=200)
    source = NeighbourSource(village_index, tiny_cog_model_alone.retriever, config=wide)
    chunk = int(source.has_continuation.nonzero()[0][0])
    found = source.read(np.array([[chunk]]))
    ordinal = int(village_index.chunk_documents()[chunk])
    text = village_index.get_documents([ordinal])[ordinal].text
    tokens = found.token_ids[0, 0][found.mask[0, 0]].numpy().astype(np.int32)
    assert text.startswith(tiny_cog_model_alone.splitter.decode(tokens).decode())


def test_an_index_without_continuations_is_refused(
    tiny_cog_model_alone: CogModel, village_index: PhraseIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        PhraseIndex, "chunk_documents", lambda self: np.arange(self.num_chunks, dtype=np.int64)
    )
    with pytest.raises(GenerationError, match="longer than a chunk"):
        NeighbourSource(village_index, tiny_cog_model_alone.retriever, config=CONFIG)
