"""Texts that come and go: each is written as it would be alone, and what ends one ends it alone."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
import torch

from cog.decoding.batch import Ticket
from cog.decoding.generator import CopyGenerator
from cog.decoding.in_order import write_in_order
from cog.decoding.queue import Event, TextQueue
from cog.decoding.request import Request
from cog.errors import CogError, GenerationError
from cog.model.cache import NO_BRANCHES, Branches, PrefixCache
from cog.records import Generation
from tests.decoding.checked import CheckedGenerator
from tests.decoding.settings import SETTINGS, ask, decoding

NUM_TOKENS = (9, 1, 14, 4, 20, 2, 11, 6)  # texts leave in another order than they came


def ask_for(num_tokens: Sequence[int], **changes: object) -> list[Request]:
    requests = ask(2, **changes)[: len(num_tokens)]
    return [
        replace(each, decoding=replace(each.decoding, max_new_tokens=count, seed=k))
        for k, (each, count) in enumerate(zip(requests, num_tokens, strict=True))
    ]


def drain(queue: TextQueue, *, until: int = 1000) -> list[Event]:
    events = []
    for _ in range(until):
        events += queue.step()
        if not queue.num_running and not queue.num_waiting:
            break
    return events


@pytest.fixture
def checked(generator: CopyGenerator) -> CheckedGenerator:
    return CheckedGenerator(generator.model, generator.index)


@pytest.mark.parametrize("batch_size", [1, 3])
def test_texts_that_come_and_go_are_read_as_alone(
    checked: CheckedGenerator, batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cog.decoding.batch.PREFILL_TOKENS", 5)  # prefixes in pieces
    requests = ask_for(NUM_TOKENS, **SETTINGS["all"])
    found = list(write_in_order(checked, requests, batch_size=batch_size))
    generations = [each for each in found if isinstance(each, Generation)]
    assert [each.num_tokens for each in generations] == list(NUM_TOKENS)
    assert [each.prefix for each in generations] == [each.prefix for each in requests]
    assert checked.num_checked == sum(each.num_steps for each in generations)


def test_texts_of_several_generators_share_a_batch(
    generator: CopyGenerator, checked: CheckedGenerator
) -> None:
    requests = ask_for(NUM_TOKENS[:4], **SETTINGS["all"])
    with TextQueue(generator.model, batch_size=8) as queue:
        writers = {queue.submit(checked, each): checked for each in requests}
        writers |= {queue.submit(generator, each): generator for each in requests}
        queue.step()
        assert queue.num_running > 1 or queue.num_waiting
        events = drain(queue)
    assert {event.ticket for event in events if event.generation} == set(writers)
    assert checked.num_checked > 0


def test_a_text_alone_shares_no_pass(
    checked: CheckedGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    real = checked.model.prefix_encoder.append

    def append(
        cache: PrefixCache, token_ids: Sequence[Sequence[int]], branches: Branches = NO_BRANCHES
    ) -> torch.Tensor:
        sizes.append(len(cache.lengths))
        return real(cache, token_ids, branches)

    monkeypatch.setattr(checked.model.prefix_encoder, "append", append)
    requests = ask_for((14, 14, 14, 14), **SETTINGS["all"])

    def write(number: int, *, is_alone: bool) -> list[Generation | None]:
        with TextQueue(checked.model, batch_size=4) as queue:
            first = queue.submit(checked, requests[0], is_alone=is_alone)
            gone = queue.submit(checked, requests[1], is_alone=True)
            others = [queue.submit(checked, each) for each in requests[2 : 2 + number]]
            queue.step()
            queue.cancel(gone)
            ended = {each.ticket: each.generation for each in drain(queue)}
            assert queue.num_running == 0
        assert set(ended) == {first, *others}
        return [ended[each] for each in (first, *others)]

    (single,) = write(0, is_alone=False)
    assert set(sizes) == {1}
    beside, *others = write(2, is_alone=True)
    assert max(sizes) == len(others) == 2
    assert beside is not None
    assert single is not None
    assert beside.segments == single.segments


def test_a_text_that_is_cancelled_makes_room(checked: CheckedGenerator) -> None:
    requests = ask_for((40, 40, 12, 12), **SETTINGS["all"])
    with TextQueue(checked.model, batch_size=2) as queue:
        tickets = [queue.submit(checked, each, is_streamed=True) for each in requests]
        while queue.num_running < 2:
            queue.step()
        queue.cancel(tickets[0])  # of the running ones
        queue.cancel(tickets[3])  # of the waiting ones
        queue.step()
        assert queue.num_running + queue.num_waiting == 2
        events = drain(queue)
        queue.cancel(tickets[1])  # nothing is left of it
        assert not queue.is_using(checked)
        assert queue.step() == []
    finished = {event.ticket: event.generation for event in events if event.generation}
    assert set(finished) == set(tickets[1:3])


def test_segments_of_a_streamed_text_join_to_it(generator: CopyGenerator) -> None:
    requests = ask_for(NUM_TOKENS, **SETTINGS["verified"])
    parts: dict[Ticket, list[str]] = {}
    with TextQueue(generator.model, batch_size=3) as queue:
        for each in requests:
            parts[queue.submit(generator, each, is_streamed=True)] = []
        for event in drain(queue):
            parts[event.ticket] += [segment.text for segment in event.segments]
            if event.generation:
                assert "".join(parts[event.ticket]) == event.generation.text
                assert len(parts[event.ticket]) == len(event.generation.segments)


def test_what_ends_a_text_ends_it_alone(generator: CopyGenerator) -> None:
    class Failing(CopyGenerator):
        def look_around(self, row: object) -> None:
            raise GenerationError("an index must be readable")

    failing = Failing(generator.model, generator.index)
    good, bad = ask_for(NUM_TOKENS[:2])
    hopeless = replace(bad, decoding=replace(bad.decoding, min_bits=1e6))
    with TextQueue(generator.model, batch_size=4) as queue:
        tickets = [
            queue.submit(generator, good),
            queue.submit(CopyGenerator(generator.model, generator.index), hopeless),
            queue.submit(failing, bad),
        ]
        with pytest.raises(GenerationError, match="max_new_tokens"):
            queue.submit(generator, replace(bad, decoding=decoding(max_new_tokens=0)))
        ended = {event.ticket: event.error for event in drain(queue)}
    assert [type(ended[ticket]) for ticket in tickets] == [
        type(None),
        GenerationError,
        GenerationError,
    ]
    assert "bits" in str(ended[tickets[1]])
    assert "readable" in str(ended[tickets[2]])


def test_errors_stand_where_their_text_would(generator: CopyGenerator) -> None:
    requests = [Request(each, decoding(max_new_tokens=2)) for each in ("The", "\ud800", "mill")]
    found = list(write_in_order(generator, requests, batch_size=2))
    assert [isinstance(each, Generation) for each in found] == [True, False, True]
    with pytest.raises(GenerationError, match="surrogate"):
        generator.generate(requests)


def test_texts_before_a_line_that_cannot_be_read_are_given(generator: CopyGenerator) -> None:
    def read() -> Iterator[Request]:
        yield from ask_for(NUM_TOKENS[:3])
        raise GenerationError("line 4 must be a JSON object")

    writing = write_in_order(generator, read(), batch_size=2)
    assert [isinstance(next(writing), Generation) for _ in range(3)] == [True] * 3
    with pytest.raises(CogError, match="line 4"):
        next(writing)


def test_out_of_memory_halves_the_batch_and_is_said_once(
    checked: CheckedGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = checked.model.prefix_encoder.append

    def append(
        cache: PrefixCache, token_ids: Sequence[Sequence[int]], branches: Branches = NO_BRANCHES
    ) -> torch.Tensor:
        if len(cache.lengths) > 2 and sum(cache.lengths) > 20:
            raise torch.OutOfMemoryError("no room on this device")
        return real(cache, token_ids, branches)

    monkeypatch.setattr(checked.model.prefix_encoder, "append", append)
    said: list[str] = []
    requests = ask_for([each + 8 for each in NUM_TOKENS], **SETTINGS["all"])
    found = list(write_in_order(checked, requests, batch_size=6, say=said.append))
    generations = [each for each in found if isinstance(each, Generation)]
    assert [each.num_tokens for each in generations] == [each + 8 for each in NUM_TOKENS]
    assert len(said) == 1


def test_a_text_too_long_for_the_device_ends_alone(
    generator: CopyGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = generator.model.prefix_encoder.append

    def append(
        cache: PrefixCache, token_ids: Sequence[Sequence[int]], branches: Branches = NO_BRANCHES
    ) -> torch.Tensor:
        if max(cache.lengths) > 40:
            raise torch.OutOfMemoryError("no room on this device")
        return real(cache, token_ids, branches)

    monkeypatch.setattr(generator.model.prefix_encoder, "append", append)
    found = list(write_in_order(generator, ask_for((60, 4, 5)), batch_size=3))
    assert [isinstance(each, Generation) for each in found] == [False, True, True]
    assert "room for one text" in str(found[0])


def test_a_text_of_another_thread_wakes_the_queue(generator: CopyGenerator) -> None:
    (request,) = ask_for(NUM_TOKENS[:1])
    with TextQueue(generator.model, batch_size=2) as queue:
        assert not queue.wait(0.0)
        assert queue.step() == []
        threading.Thread(target=queue.submit, args=(generator, request)).start()
        assert queue.wait(60.0)
        assert [bool(event.generation) for event in drain(queue)] == [True]
        assert not queue.wait(0.0)


def test_texts_of_one_prefix_share_their_pool(generator: CopyGenerator) -> None:
    first, second = (Request("The old mill", decoding(seed=seed)) for seed in (1, 2))
    other = Request("The old mill", decoding(top_k_documents=3))
    pools = [generator.pools.get_pool(each)[0] for each in (first, second, other)]
    assert pools[0] is pools[1]
    assert pools[0] is not pools[2]


def test_a_thread_that_waits_between_steps_writes_all(generator: CopyGenerator) -> None:
    with TextQueue(generator.model, batch_size=1) as queue:
        tickets = [queue.submit(generator, request) for request in ask_for((2, 1, 3))]
        ended = []
        while len(ended) < len(tickets) and queue.wait(60):
            ended += [event.ticket for event in queue.step() if event.generation]
        assert ended == tickets
