"""The adapter: gates at zero change nothing, the future changes no past, and a plain loop."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from cog.baselines.retro.adapter import (
    CrossAttention,
    Placement,
    RetroAdapter,
    get_chunk,
)
from cog.baselines.retro.config import RetroConfig
from cog.baselines.retro.generator import RetroGenerator, RetroLoop
from cog.baselines.retro.neighbours import NeighbourSource, lay_out
from cog.baselines.transformer import TransformerGenerator
from cog.decoding.request import Request
from cog.errors import GenerationError, IndexMismatchError
from cog.index.read.reader import PhraseIndex
from cog.model.load import CogModel
from cog.records import Decoding
from tests.choices import assert_same_choices, record_choices

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
    with record_choices() as plain:
        TransformerGenerator(tiny_cog_model_alone, corpus_id="village").generate(REQUESTS)
    with record_choices() as closed:
        RetroGenerator(
            tiny_cog_model_alone, village_index, adapter=make_adapter(is_open=False)
        ).generate(REQUESTS)
    assert_same_choices(closed, plain)


def test_open_gates_change_the_text_and_a_batch_is_as_each_text_alone(
    tiny_cog_model_alone: CogModel, village_index: PhraseIndex
) -> None:
    plain = TransformerGenerator(tiny_cog_model_alone, corpus_id="village").generate(REQUESTS)
    retro = RetroGenerator(tiny_cog_model_alone, village_index, adapter=make_adapter(is_open=True))
    with record_choices() as found:
        together = retro.generate(REQUESTS)
    with record_choices() as wanted:
        for request in REQUESTS:
            retro.generate([request])
    assert_same_choices(found, wanted)
    assert [each.text for each in together] != [each.text for each in plain]
    assert set(together[0].seconds) == {"retrieve", "gather", "decode"}


def test_one_pass_equals_token_by_token(
    tiny_cog_model_alone: CogModel, village_index: PhraseIndex
) -> None:
    source = NeighbourSource(village_index, tiny_cog_model_alone, config=CONFIG)
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
    source = NeighbourSource(village_index, tiny_cog_model_alone, config=CONFIG)
    loop = RetroLoop(tiny_cog_model_alone, make_adapter(is_open=True), source)
    encoder = tiny_cog_model_alone.prefix_encoder
    first = tiny_cog_model_alone.splitter.encode("The mill by the river is old").tolist()[:7]
    logits = []
    for ending in ("a bridge and a garden", "cold water in the well of the church"):
        rest = tiny_cog_model_alone.splitter.encode(ending).tolist()[:6]
        found = []
        for end in range(1, len(first + rest) + 1):  # the whole text before each token, in one go
            loop.begin(1)
            cache = encoder.new_cache(batch=1, capacity=64)
            states = loop.append_last(cache, [(first + rest)[:end]])
            found.append(encoder.token_logits(states)[0])
        loop.begin(1)
        cache = encoder.new_cache(batch=1, capacity=64)
        states = loop.append_last(cache, [first + rest])
        torch.testing.assert_close(encoder.token_logits(states)[0], found[-1])
        logits.append(torch.stack(found))
    torch.testing.assert_close(logits[0][: len(first)], logits[1][: len(first)])
    assert not torch.allclose(logits[0][-1], logits[1][-1])


OWNERS = ([1, -1, 0, 1, 1], [0, 0, 1, 1, 2, 2])


@pytest.mark.parametrize("owners", OWNERS, ids=["scattered", "dense"])
def test_cross_attention_equals_a_plain_loop(owners: list[int]) -> None:
    torch.manual_seed(1)
    layer = CrossAttention(8, 2)
    nn.init.constant_(layer.gate, 0.7)
    hidden, states = torch.randn(len(owners), 8), torch.randn(6, 8)
    rows = torch.tensor([[0, 1, 0, 0], [2, 3, 4, 5], [1, 0, 0, 0]])
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]], dtype=torch.bool)
    placement = Placement.make(np.array(owners), num_memories=3, device=torch.device("cpu"))
    assert (placement.seen is None) is (owners is OWNERS[1])
    found = layer(hidden, layer.project(states, rows), mask, placement)
    for token, owner in enumerate(owners):
        if owner < 0:
            assert (found[token] == 0).all()
            continue
        query = layer.query(layer.norm(hidden[token]))
        keys, values = layer.key_value(states[rows[owner][mask[owner]]]).chunk(2, dim=-1)
        heads = []
        for head in range(2):
            part = slice(4 * head, 4 * head + 4)
            weights = torch.softmax(keys[:, part] @ query[part] / 2.0, dim=0)
            heads.append(weights @ values[:, part])
        wanted = torch.tanh(layer.gate) * layer.output(torch.cat(heads))
        torch.testing.assert_close(found[token], wanted, rtol=1e-5, atol=1e-6)


def test_neighbours_are_encoded_together_as_each_alone() -> None:
    torch.manual_seed(2)
    encoder = make_adapter(is_open=True).encoder
    tokens = {3: np.arange(5, dtype=np.int32), 7: np.arange(9, dtype=np.int32)}
    both = lay_out(np.array([[3, 7], [7, -1]]), tokens)
    assert both.memory_mask.sum(1).tolist() == [14, 9]
    embeddings = torch.randn(10, 16)
    states = encoder(embeddings[both.token_ids], both)
    for chunk, part in ((3, slice(0, 5)), (7, slice(5, 14))):
        alone = lay_out(np.array([[chunk]]), tokens)
        wanted = encoder(embeddings[alone.token_ids], alone)
        torch.testing.assert_close(states[part], wanted, rtol=1e-4, atol=1e-5)


def test_neighbours_of_the_left_out_document_do_not_count(
    tiny_cog_model_alone: CogModel, village_index: PhraseIndex
) -> None:
    source = NeighbourSource(village_index, tiny_cog_model_alone, config=CONFIG)
    chunk = source._read_tokens(np.array([0]))[0]
    text = tiny_cog_model_alone.splitter.decode(chunk).decode()
    assert source.find([text])[0, 0] == 0
    without = source.find([text], left_out=np.array([0]))
    assert (without >= 0).all()
    assert not (source.documents[without] == 0).any()
    others = range(1, village_index.num_documents)
    allowed = village_index.allow(village_index.count_licences(), excluded=others)
    assert (source.find([text], left_out=np.array([0]), allowed=allowed) == -1).all()


def test_a_neighbour_is_followed_by_its_continuation(
    tiny_cog_model_alone: CogModel, village_index: PhraseIndex
) -> None:
    wide = replace(CONFIG, neighbour_tokens=200, continuation_tokens=200)
    source = NeighbourSource(village_index, tiny_cog_model_alone, config=wide)
    chunk = int(source.has_continuation.nonzero()[0][0])
    tokens = source.read(np.array([chunk, -1]))[chunk]
    ordinal = int(village_index.chunk_documents()[chunk])
    text = village_index.get_documents([ordinal])[ordinal].text
    found = tiny_cog_model_alone.splitter.decode(tokens).decode()
    assert text.startswith(found)
    assert len(tokens) > len(source._read_tokens(np.array([chunk]))[chunk])


def test_an_index_of_fewer_chunks_than_neighbours_is_refused(
    tiny_cog_model_alone: CogModel, village_index: PhraseIndex
) -> None:
    greedy = replace(CONFIG, num_neighbours=village_index.num_chunks + 1)
    with pytest.raises(GenerationError, match=f"needs an index of {greedy.num_neighbours} chunks"):
        NeighbourSource(village_index, tiny_cog_model_alone, config=greedy)


def test_an_index_by_the_retriever_of_another_model_is_refused_and_both_are_named(
    tiny_cog_model_alone: CogModel, village_index: PhraseIndex
) -> None:
    other = replace(tiny_cog_model_alone, fingerprint="f" * 64)
    wanted = f"retriever of model ffff.*; found: .* of model {village_index.model:.16}"
    with pytest.raises(IndexMismatchError, match=wanted):
        NeighbourSource(village_index, other, config=CONFIG)
