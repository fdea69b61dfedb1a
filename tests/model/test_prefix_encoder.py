"""The packed cache against transformers' own forward pass, for two architectures."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from benchmarks.peer import load_network
from cog.model.cache import PrefixCache
from cog.model.load import load_model
from cog.model.modules import CausalModules
from cog.model.prefix_encoder import PrefixEncoder
from tests.model_fixtures import make_tiny_model


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model"), architecture=request.param)


@pytest.fixture(scope="module")
def encoder(folder: Path) -> PrefixEncoder:
    return load_model(folder).prefix_encoder


@cache
def load_plain(folder: Path) -> PreTrainedModel:
    # the same weights under transformers' own attention
    plain = AutoModelForCausalLM.from_pretrained(folder / "prefix", attn_implementation="eager")
    plain.load_state_dict(load_network(folder).state_dict())
    return plain.eval()


@torch.no_grad()
def plain_states(folder: Path, ids: list[int]) -> torch.Tensor:
    plain = load_plain(folder)
    output = plain(torch.tensor([ids]), output_hidden_states=True, use_cache=False)
    return output.hidden_states[-1][0]


SEQUENCES = [[3, 17, 40, 41, 42, 99], [5], [7, 8, 9, 10, 11, 12, 13, 14, 15]]


def test_ragged_batch_equals_each_sequence_alone(encoder: PrefixEncoder, folder: Path) -> None:
    cache = encoder.new_cache(batch=3, capacity=4)
    states = encoder.append(cache, SEQUENCES)
    expected = torch.cat([plain_states(folder, ids) for ids in SEQUENCES])
    torch.testing.assert_close(states, expected, atol=1e-5, rtol=1e-5)


def test_cached_steps_equal_one_pass(encoder: PrefixEncoder, folder: Path) -> None:
    cache = encoder.new_cache(batch=3, capacity=2)  # grows on the way
    steps = [
        [ids[:1] for ids in SEQUENCES],
        [ids[1:4] for ids in SEQUENCES],
        [ids[4:] for ids in SEQUENCES],
    ]
    last = {}
    for step in steps:
        states = encoder.append_last(cache, step)
        for row, state in zip([i for i, ids in enumerate(step) if ids], states, strict=True):
            last[row] = state
    for row, ids in enumerate(SEQUENCES):
        expected = plain_states(folder, ids)[-1]
        torch.testing.assert_close(last[row], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("num_moved", range(4))
def test_a_cache_that_memory_gave_out_for_grows_in_the_next_pass(
    encoder: PrefixEncoder, folder: Path, num_moved: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, moved = PrefixCache._move, []

    def move(self: PrefixCache, old: torch.Tensor, *room: int) -> torch.Tensor:
        moved.append(room)
        if len(moved) == num_moved + 1:
            raise torch.OutOfMemoryError("no room on this device")
        return real(self, old, *room)

    monkeypatch.setattr(PrefixCache, "_move", move)
    cache = encoder.new_cache(batch=1, capacity=4)
    encoder.append(cache, [SEQUENCES[0][:4]])
    with pytest.raises(torch.OutOfMemoryError):
        encoder.append(cache, [SEQUENCES[0][4:]])
    state = encoder.append_last(cache, [SEQUENCES[0][4:]])
    expected = plain_states(folder, SEQUENCES[0])[-1:]
    torch.testing.assert_close(state, expected, atol=1e-5, rtol=1e-5)


def test_cut_prefix_goes_on_as_if_never_longer(encoder: PrefixEncoder, folder: Path) -> None:
    cache = encoder.new_cache(batch=2, capacity=8)
    encoder.append(cache, [[3, 17, 40, 41], [5, 6, 7]])
    cache.cut(0, 2)
    states = encoder.append_last(cache, [[99, 100], [8]])
    torch.testing.assert_close(
        states[0], plain_states(folder, [3, 17, 99, 100])[-1], atol=1e-5, rtol=1e-5
    )
    torch.testing.assert_close(
        states[1], plain_states(folder, [5, 6, 7, 8])[-1], atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("seed", range(6))
def test_branches_are_read_as_texts_of_their_own(
    encoder: PrefixEncoder, folder: Path, seed: int
) -> None:
    random = np.random.default_rng(seed)
    texts = [random.integers(3, 90, random.integers(1, 7)).tolist() for _ in range(3)]
    cache = encoder.new_cache(batch=len(texts), capacity=3)  # grows on the way
    encoder.append(cache, texts)
    for _ in range(2):
        new = [random.integers(3, 90, random.integers(1, 9)).tolist() for _ in texts]
        branches = {
            row: [int(random.integers(-1, token)) for token in range(len(ids))]
            for row, ids in enumerate(new)
            if row != seed % len(texts)  # one is a chain
        }
        states = iter(encoder.append(cache, new, branches))
        for row, ids in enumerate(new):
            paths: list[list[int]] = []  # of each new token, those up to it
            parents = branches.get(row, range(-1, len(ids) - 1))
            for token, parent in enumerate(parents):
                paths.append([*(paths[parent] if parent >= 0 else []), token])
                read = texts[row] + [ids[each] for each in paths[-1]]
                torch.testing.assert_close(
                    next(states), plain_states(folder, read)[-1], atol=1e-5, rtol=1e-5
                )
            kept = paths[int(random.integers(len(paths)))]
            end = len(texts[row])
            cache.keep(row, end, [end + each for each in kept])
            texts[row] = texts[row] + [ids[each] for each in kept]
        assert cache.lengths == [len(each) for each in texts]
    states = encoder.append_last(cache, [[11, 12]] * len(texts))  # what was kept is as if read so
    for text, state in zip(texts, states, strict=True):
        expected = plain_states(folder, [*text, 11, 12])[-1]
        torch.testing.assert_close(state, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_states_do_not_depend_on_the_number_of_threads(folder: Path, precision: str) -> None:
    before, states = torch.get_num_threads(), []
    encoder = load_model(folder, precision=precision).prefix_encoder
    try:
        for num_threads in (1, 3, 3, 3):
            torch.set_num_threads(num_threads)
            cache = encoder.new_cache(batch=3, capacity=4)
            found = encoder.append(cache, SEQUENCES)
            states.append(torch.cat([found, encoder.token_logits(found)], dim=1))
    finally:
        torch.set_num_threads(before)
    atol = 1e-5 if precision == "float32" else 0.05
    for each in states[1:]:  # to the last bit on a processor where passes take turns
        torch.testing.assert_close(each, states[0], atol=atol, rtol=1e-5)
    assert torch.equal(states[2], states[3])


def test_cutting_beyond_the_end_is_refused(encoder: PrefixEncoder) -> None:
    cache = encoder.new_cache(batch=1, capacity=8)
    encoder.append(cache, [[1, 2, 3]])
    with pytest.raises(ValueError, match="3 tokens to 4"):
        cache.cut(0, 4)


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("part_cost", [0, 10**9])
def test_rows_that_come_and_go_are_read_as_alone(
    encoder: PrefixEncoder,
    folder: Path,
    place: int,
    part_cost: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # at both extremes of what attends together; memory grows in both directions on the way
    monkeypatch.setattr("cog.model.cache.PART_COST", part_cost)
    cache = encoder.new_cache(batch=0, capacity=1)
    rows: list[list[int]] = []

    def read(new: list[list[int]]) -> None:
        states = encoder.append(cache, new)
        for row, ids in zip(rows, new, strict=True):
            row += ids
        expected = [
            plain_states(folder, row)[-len(ids) :]
            for row, ids in zip(rows, new, strict=True)
            if ids
        ]
        torch.testing.assert_close(states, torch.cat(expected), atol=1e-5, rtol=1e-5)

    for ids in SEQUENCES:  # each comes while the others go on
        cache.add()
        rows.append([])
        read([[30 + len(row)] for row in rows[:-1]] + [ids])
    cache.drop(place)
    rows[place] = rows[-1]
    rows.pop()
    read([[61], []])
    cache.add()
    rows.append([])
    read([[], [62, 63], [3, 4, 5, 6]])
    read([[1], [2], [3]])


def test_long_prefix_is_read_in_blocks(
    encoder: PrefixEncoder, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cog.model.prefix_encoder.PREFILL_TOKENS", 7)
    ids = [list(range(1, 31)), list(range(40, 49))]
    states = encoder.append_last(encoder.new_cache(batch=2, capacity=8), ids)
    for state, sequence in zip(states, ids, strict=True):
        torch.testing.assert_close(state, plain_states(folder, sequence)[-1], atol=1e-5, rtol=1e-5)


def test_token_logits_are_the_tied_embedding(encoder: PrefixEncoder, folder: Path) -> None:
    states = torch.randn(2, 16)
    weight = load_network(folder).get_input_embeddings().weight
    torch.testing.assert_close(encoder.token_logits(states), states @ weight.T)


def test_without_projection_the_query_is_the_state(folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder / "prefix")
    encoder = PrefixEncoder(CausalModules(model), query_projection=None, begin_token_id=None)
    states = torch.randn(3, 16)
    start, end = encoder.phrase_queries(states)
    assert torch.equal(torch.cat([start, end], dim=1), states)
