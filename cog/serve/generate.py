"""``POST /generate``: prefixes go in; the JSON of ``cog generate`` comes out, streamed if asked."""

import secrets
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import Response

from cog.serve.answers import answer_json
from cog.serve.arriving import write_event
from cog.serve.bodies import GenerateBody
from cog.serve.engine import Engine
from cog.serve.errors import state_error
from cog.serve.writing import (
    EventStream,
    Texts,
    collect_unless_gone,
    describe_start,
    prepare,
    to_answer,
)

WAITING = b": wait\n\n"


async def generate(engine: Engine, request: Request, body: GenerateBody) -> Response:
    """Texts, or a stream of what becomes of them."""
    name = f"gen-{secrets.token_hex(12)}"
    prepared = await prepare(engine, body)
    texts = Texts(engine, prepared, is_streamed=body.stream)
    if body.stream:
        return EventStream(texts, _iter_events(texts, name))
    generations = await collect_unless_gone(request, texts)
    told = [to_answer(each, number, prepared) for number, each in enumerate(generations)]
    return answer_json({"id": name, "generations": told})


async def _iter_events(texts: Texts, name: str) -> AsyncIterator[bytes]:
    yield write_event(describe_start(texts, name), name="begin")
    starts = [0] * len(texts.prepared.requests)
    try:
        async for told in texts.iter_events():
            if told is None:
                yield WAITING
                continue
            number, event = told
            for segment in event.segments:
                content = {"number": number, "start": starts[number], "segment": segment.to_json()}
                starts[number] += len(segment.text)
                yield write_event(content, name="segment")
            if event.growing is not None:
                content = {
                    "number": number,
                    "start": starts[number],
                    "segment": event.growing.to_json(),
                }
                yield write_event(content, name="growing")
            if event.error is not None:
                content = {"number": number, **state_error(event.error).to_json()}
                yield write_event(content, name="error")
            if event.generation is not None:
                written = to_answer(event.generation, number, texts.prepared)
                yield write_event({"number": number, "generation": written}, name="generation")
    except Exception as error:
        yield write_event({"number": None, **state_error(error).to_json()}, name="error")
    yield write_event({}, name="done")
