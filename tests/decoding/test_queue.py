"""Texts that come and go: each is written as it would be alone, and what ends one ends it alone."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import groupby

import pytest
import torch

from cog.decoding.batch import Batch, Ending, Ticket
from cog.decoding.choices import ScoreWords
from cog.decoding.draft import Draft
from cog.decoding.generator import CopyGenerator
from cog.decoding.in_order import write_in_order
from cog.decoding.queue import Event, TextQueue
from cog.decoding.request import Request
from cog.decoding.row import Row
from cog.decoding.workers import Job, Workers
from cog.errors import CogError, GenerationError
from cog.model import cache as cache_module
from cog.model.cache import NO_BRANCHES, Branches, PrefixCache
from cog.records import Generation, Segment
from tests.choices import record_choices
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
    requests = ask_for([5 * each for each in NUM_TOKENS], **SETTINGS["spans"])
    parts: dict[Ticket, list[Segment]] = {}
    grown: dict[Ticket, Segment] = {}  # copies that may go on
    num_grown = 0
    with TextQueue(generator.model, batch_size=3) as queue:
        for each in requests:
            parts[queue.submit(generator, each, is_streamed=True)] = []
        for event in drain(queue):
            for segment in event.segments:
                so_far = grown.pop(event.ticket, None)  # the first of them is what had grown
                assert so_far is None or is_beginning(so_far, segment)
            parts[event.ticket] += event.segments
            if event.growing:
                before = grown.get(event.ticket)
                assert before is None or is_beginning(before, event.growing)
                assert before is None or len(event.growing.text) > len(before.text)
                num_grown += before is not None
                grown[event.ticket] = event.growing
            if event.generation:
                assert tuple(parts[event.ticket]) == event.generation.segments
                assert event.ticket not in grown
    assert num_grown


def is_beginning(one: Segment, other: Segment) -> bool:
    """Whether one copy is another, or goes on as it."""
    same = one.document_id == other.document_id and one.char_start == other.char_start
    return same and other.text.startswith(one.text)


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


def test_a_text_without_probabilities_ends_alone(generator: CopyGenerator) -> None:
    broken, whole = ask_for((6, 7))

    class Breaking(CopyGenerator):
        def _choose(self, row: Row, logits: torch.Tensor, score_words: ScoreWords) -> Draft:
            logits = logits * float("nan") if row.request == broken else logits
            return super()._choose(row, logits, score_words)

    breaking = Breaking(generator.model, generator.index)
    found = list(write_in_order(breaking, [broken, whole], batch_size=2))
    assert "must have probabilities" in str(found[0])
    assert isinstance(found[1], Generation)


def test_a_choice_that_memory_gave_out_for_takes_its_draw_again(generator: CopyGenerator) -> None:
    class Failing(CopyGenerator):
        num_drafted = 0

        def draft(
            self, texts: Sequence[tuple[Row, Ending]]
        ) -> tuple[list[Draft | CogError | None], list[Job]]:
            drafts, jobs = super().draft(texts)
            self.num_drafted += 1
            return drafts, [*jobs, run_out_of_memory] if self.num_drafted == 4 else jobs

    def run_out_of_memory() -> None:
        raise torch.OutOfMemoryError("no room on this device")

    requests = ask_for((12, 12, 12), **SETTINGS["verified"])
    with record_choices() as found:
        list(write_in_order(Failing(generator.model, generator.index), requests, batch_size=3))
    with record_choices() as wanted:
        generator.generate(requests)
    assert sum(len(each.draws) for each in found) > sum(len(each.draws) for each in wanted)
    for own, other in zip(found, wanted, strict=True):
        # of choices that were taken twice, with the same draw, the last counts
        assert [each for each, _ in groupby(own.draws)] == other.draws


def test_a_pass_that_all_are_cancelled_before_reads_nothing(generator: CopyGenerator) -> None:
    class Leaving(Ticket):
        num_asked = 0

        @property
        def is_over(self) -> bool:
            self.num_asked += 1  # its client goes away behind the first question
            return self.num_asked > 1

    (request,) = ask_for((5,))
    ticket = Leaving(generator, request)
    ticket.row, _ = generator.begin(request)
    batch = Batch(generator.model, Workers(torch.device("cpu")))
    batch.join(ticket)
    batch.step()
    assert ticket.num_asked > 1
    assert ticket.text.num_tokens == 0


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


def test_a_cache_without_room_for_all_has_room_for_half_of_them(
    checked: CheckedGenerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = cache_module._make_zeros

    def make_zeros(like: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
        num_rows, _, num_positions, _ = shape
        if num_rows * num_positions > 200:
            raise torch.OutOfMemoryError("no room on this device")
        return real(like, shape)

    monkeypatch.setattr(cache_module, "_make_zeros", make_zeros)
    said: list[str] = []
    requests = ask_for([40, 41, 42, 43, 44, 45], **SETTINGS["verified"])
    found = list(write_in_order(checked, requests, batch_size=6, say=said.append))
    assert [isinstance(each, Generation) for each in found] == [True] * 6
    assert said == ["the device is out of memory: 3 texts at a time from now on"]


def test_a_pool_there_is_no_room_for_is_made_when_others_have_ended(
    generator: CopyGenerator,
) -> None:
    class Crowded(CopyGenerator):
        num_begun = 0

        def begin(self, request: Request) -> tuple[Row, dict[str, float]]:
            self.num_begun += 1
            if self.num_begun in (2, 3, 6) or request.decoding.max_new_tokens == 7:
                raise torch.OutOfMemoryError("no room on this device")
            return super().begin(request)

    crowded = Crowded(generator.model, generator.index)
    requests = ask_for([5, 6, 7, 8, 9])
    found = list(write_in_order(crowded, requests, batch_size=4))
    assert [isinstance(each, Generation) for each in found] == [True, True, False, True, True]
    assert "room for one text" in str(found[2])


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


def test_a_pool_that_several_threads_ask_for_is_made_once(generator: CopyGenerator) -> None:
    request = Request("The old mill and the baker", decoding())
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(generator.pools.get_pool, [request] * 4))
    assert len({id(pool) for pool, _ in found}) == 1


def test_a_thread_that_waits_between_steps_writes_all(generator: CopyGenerator) -> None:
    with TextQueue(generator.model, batch_size=1) as queue:
        tickets = [queue.submit(generator, request) for request in ask_for((2, 1, 3))]
        ended = []
        while len(ended) < len(tickets) and queue.wait(60):
            ended += [event.ticket for event in queue.step() if event.generation]
        assert ended == tickets
