"""Writing for a request: a body goes in, events of its texts come out as they become known."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request as HttpRequest
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from cog.decoding.generator import CopyGenerator
from cog.decoding.queue import Event
from cog.decoding.request import Request
from cog.records import Decoding, Generation
from cog.serve.bodies import GenerateBody, check_body, check_length, choose_decoding
from cog.serve.engine import Engine, Job
from cog.serve.errors import ApiError
from cog.serve.indexes import Version
from cog.serve.systems import settle_system

WAIT_SECONDS = 5.0  # after which a stream says that it is still there
Result = TypeVar("Result")
logger = logging.getLogger("cog.serve")


class GoneError(Exception):
    """The client went away: there is nobody to answer."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is about to be written."""

    version: Version  # what is copied from; open
    generator: CopyGenerator  # the generator on it
    requests: list[Request]  # the texts
    system: str  # what writes, by name
    is_alone: bool  # whether each text shares its passes with no other
    decoding: Decoding  # the settings in force, with the first seed
    tuned: str  # what was tuned, in one line; empty if nothing was
    num_tokens: list[int]  # number of tokens of each prefix that are read
    num_unread: list[int]  # number of its first tokens that are beyond the context

    def describe(self) -> dict[str, Any]:
        """What the texts are written with."""
        return {
            "system": self.system,
            "deterministic": self.is_alone,
            "corpus": self.version.corpus,
            "index": self.version.index,
            "model": self.generator.model.fingerprint,
            "precision": self.generator.model.prefix_encoder.precision,
        }


async def prepare(
    engine: Engine, body: GenerateBody, *, names: dict[str, str] | None = None
) -> Prepared:
    """Check a request, choose its settings and open what it copies from, once for it.

    ``names`` says what fields are called in the request, where that is something else.
    """
    check_body(body, engine.settings, names=names or {})
    if engine.settings.has_prompts_in_log:
        logger.info("asked for %s", body)
    return await run_in_threadpool(_prepare, engine, body, names or {})


def _prepare(engine: Engine, body: GenerateBody, names: dict[str, str]) -> Prepared:
    version = engine.indexes.resolve(body.corpus, body.index)
    decoding, tuned = choose_decoding(
        engine.paths,
        engine.params,
        body,
        version,
        model=engine.model.fingerprint,
        names=names,
    )
    decoding, make = settle_system(body.system, decoding)
    check_length(decoding, engine.settings, names=names)
    requests = [
        Request(prefix, replace(decoding, seed=decoding.seed + extra))
        for prefix in body.prefix
        for extra in range(body.num_return)
    ]
    generator = engine.indexes.open(version, body.rule, make=make)
    try:
        firsts = requests[:: body.num_return]
        for request in firsts:
            generator.check(request)
        counts = [
            (len(generator.prefix_ids(request)), generator.num_unread_tokens(request))
            for request in firsts
            for _ in range(body.num_return)
        ]
    except BaseException:
        engine.indexes.release(version)
        raise
    return Prepared(
        version,
        generator,
        requests,
        body.system,
        body.deterministic,
        decoding,
        tuned,
        [num_read for num_read, _ in counts],
        [num_unread for _, num_unread in counts],
    )


class Texts:
    """The texts of one request, which are being written from the moment this is made."""

    def __init__(self, engine: Engine, prepared: Prepared, *, is_streamed: bool) -> None:
        self.prepared = prepared
        self.num_before = engine.num_waiting
        self._engine = engine
        self._events: asyncio.Queue[tuple[int, Event]] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def deliver(number: int, event: Event) -> None:
            try:
                loop.call_soon_threadsafe(self._events.put_nowait, (number, event))
            except RuntimeError:  # the loop has ended, and with it everybody who listens
                logger.debug("an event came too late")

        self._job: Job = engine.submit(
            prepared.version,
            prepared.generator,
            prepared.requests,
            is_streamed=is_streamed,
            is_alone=prepared.is_alone,
            deliver=deliver,
        )

    async def iter_events(self) -> AsyncIterator[tuple[int, Event] | None]:
        """Wait for what becomes known: the number of a text and an event.

        None every few seconds in which nothing does; ``ApiError`` if it takes too long.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + self._engine.settings.max_seconds
        num_left = len(self.prepared.requests)
        while num_left:
            try:
                async with asyncio.timeout(min(WAIT_SECONDS, max(0.0, end - loop.time()))):
                    number, event = await self._events.get()
            except TimeoutError:
                if loop.time() >= end:
                    self.cancel(outcome="late")
                    raise ApiError(
                        504,
                        f"a request must be done in {self._engine.settings.max_seconds:g} seconds",
                        code="timeout",
                    ) from None
                yield None
                continue
            num_left -= event.generation is not None or event.error is not None
            yield number, event

    async def collect(self) -> list[Generation]:
        """Wait for all texts, in the order asked; the first that fails is raised."""
        found: dict[int, Generation] = {}
        async for told in self.iter_events():
            if told is None:
                continue
            number, event = told
            if event.error is not None:
                raise event.error
            if event.generation is not None:
                found[number] = event.generation
        return [found[number] for number in sorted(found)]

    def cancel(self, *, outcome: str = "left") -> None:
        """Give up what is left; nothing happens if nothing is."""
        self._engine.cancel(self._job, outcome=outcome)


class EventStream(StreamingResponse):
    """Server-sent events of texts, which are given up when the client goes away."""

    def __init__(self, texts: Texts, events: AsyncIterator[bytes]) -> None:
        super().__init__(events, media_type="text/event-stream")
        self._texts = texts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._texts.cancel()


async def wait_unless_gone(request: HttpRequest, work: Awaitable[Result]) -> Result:
    """Wait for something as long as the client does, else ``GoneError``; the body must be read."""

    async def listen() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    task, listener = asyncio.ensure_future(work), asyncio.create_task(listen())
    try:
        await asyncio.wait({task, listener}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise GoneError
        return task.result()
    finally:
        for each in (task, listener):
            each.cancel()


async def collect_unless_gone(request: HttpRequest, texts: Texts) -> list[Generation]:
    """Wait for all texts; what is left is given up if one fails, or the client goes away."""
    try:
        return await wait_unless_gone(request, texts.collect())
    finally:
        texts.cancel()


def to_answer(generation: Generation, number: int, prepared: Prepared) -> dict[str, Any]:
    """A text as it is answered: as ``cog generate --json`` writes it, with a few more keys."""
    more = {
        "number": number,
        "unread_tokens": prepared.num_unread[number],
        "system": prepared.system,
        "deterministic": prepared.is_alone,
    }
    return {**generation.to_json(), **more}


def describe_start(texts: Texts, name: str) -> dict[str, Any]:
    """What a stream begins with, under the id of its request."""
    prepared = texts.prepared
    return {
        "id": name,
        **prepared.describe(),
        "num_texts": len(prepared.requests),
        "waiting": texts.num_before,
        "texts": [
            {
                "number": number,
                "prefix": request.prefix,
                "seed": request.decoding.seed,
                "unread_tokens": prepared.num_unread[number],
            }
            for number, request in enumerate(prepared.requests)
        ],
        "decoding": asdict(prepared.decoding),
        "tuned": prepared.tuned,
    }
