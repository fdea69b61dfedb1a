"""Texts in the order asked: requests go into a queue, what became of each comes out in turn."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from cog.decoding.batch import Ticket
from cog.decoding.queue import Say, TextQueue
from cog.decoding.request import Request
from cog.errors import CogError
from cog.records import Generation, Segment

if TYPE_CHECKING:
    from cog.decoding.generator import CopyGenerator

OnSegment = Callable[[int, Segment], None]
Outcome = Generation | CogError


def write_in_order(
    generator: "CopyGenerator",
    requests: Iterable[Request],
    *,
    batch_size: int,
    on_segment: OnSegment | None = None,
    say: Say | None = None,
) -> Iterator[Outcome]:
    """Write texts by a queue of their own: each comes as a text, or as what ended it alone.

    As many requests as are begun are taken before they are needed; if taking one raises a
    ``CogError``, texts asked for before are given first. ``on_segment`` is called with the number
    of a text and each of its segments as soon as it is final, ``say`` once if the device has no
    room for the batch.
    """
    source, failure = enumerate(requests), None
    numbers: dict[Ticket, int] = {}
    found: dict[int, Outcome] = {}
    num_given, is_open = 0, True
    places = max(1, batch_size)
    with TextQueue(generator.model, batch_size=places, is_steady=True, say=say) as queue:
        while is_open or numbers:
            while is_open and len(numbers) < queue.num_begun_at_once:
                try:
                    number, request = next(source, (-1, None))
                except CogError as error:
                    request, failure = None, error
                is_open = request is not None
                if request is not None:
                    outcome = _submit(queue, generator, request, is_streamed=bool(on_segment))
                    if isinstance(outcome, Ticket):
                        numbers[outcome] = number
                    else:
                        found[number] = outcome
            _step(queue, numbers, found, on_segment)
            while num_given in found:
                yield found.pop(num_given)
                num_given += 1
    if failure is not None:
        raise failure


def _submit(
    queue: TextQueue, generator: "CopyGenerator", request: Request, *, is_streamed: bool
) -> Ticket | CogError:
    try:
        return queue.submit(generator, request, is_streamed=is_streamed)
    except CogError as error:
        return error


def _step(
    queue: TextQueue,
    numbers: dict[Ticket, int],
    found: dict[int, Outcome],
    on_segment: OnSegment | None,
) -> None:
    for event in queue.step():
        if on_segment is not None:
            for segment in event.segments:
                on_segment(numbers[event.ticket], segment)
        outcome = event.generation or event.error
        if outcome is not None:
            found[numbers.pop(event.ticket)] = outcome
