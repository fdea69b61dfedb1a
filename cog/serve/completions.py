"""``/v1``: OpenAI's completions and models, so that its clients work; copies are annotations."""

import secrets
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from cog.records import CORPUS, Segment
from cog.serve.answers import answer_json
from cog.serve.arriving import write_event
from cog.serve.bodies import CompletionBody
from cog.serve.engine import Engine
from cog.serve.errors import state_error
from cog.serve.generate import WAITING
from cog.serve.writing import EventStream, Prepared, Texts, collect_unless_gone, prepare

# what settings and fields are called in a request
NAMES = {
    "prefix": "prompt",
    "num_return": "n",
    "max_new_tokens": "max_tokens",
    "top_p": "top_p",
    "seed": "seed",
    "temperature": "temperature",
}
END = b"data: [DONE]\n\n"


async def complete(engine: Engine, request: Request, body: CompletionBody) -> Response:
    """Texts, or a stream of their pieces."""
    named = {key: shown for key, shown in NAMES.items() if key not in body.decoding}
    prepared = await prepare(engine, body.to_generate(), names=named)
    head = _Head(body.model, prepared)
    texts = Texts(engine, prepared, is_streamed=bool(body.stream))
    if body.stream:
        has_usage = body.stream_options is not None and body.stream_options.include_usage
        return EventStream(texts, _iter_chunks(texts, head, has_usage=has_usage))
    generations = await collect_unless_gone(request, texts)
    choices = [
        head.choose(number, each.text, each.segments, start=0, reason="length")
        for number, each in enumerate(generations)
    ]
    num_written = sum(each.num_tokens for each in generations)
    return answer_json({**head.to_json(choices), "usage": head.count(num_written)})


class _Head:
    # what every part of an answer begins with
    def __init__(self, model: str, prepared: Prepared) -> None:
        self._prepared = prepared
        self._common = {
            "id": f"cmpl-{secrets.token_hex(12)}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": prepared.generator.model.fingerprint,
        }

    def to_json(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {**self._common, "choices": choices, "cog": self._prepared.describe()}

    def choose(
        self, number: int, text: str, segments: Sequence[Segment], *, start: int, reason: str | None
    ) -> dict[str, Any]:
        return {
            "index": number,
            "text": text,
            "finish_reason": reason,
            "logprobs": None,
            "seed": self._prepared.requests[number].decoding.seed,
            "unread_tokens": self._prepared.num_unread[number],
            "annotations": annotate(segments, start=start),
        }

    def count(self, num_written: int) -> dict[str, int]:
        # a prompt counts once, however many texts go on from it
        first = self._prepared.decoding.seed
        pairs = zip(self._prepared.requests, self._prepared.num_tokens, strict=True)
        num_read = sum(num for request, num in pairs if request.decoding.seed == first)
        return {
            "prompt_tokens": num_read,
            "completion_tokens": num_written,
            "total_tokens": num_read + num_written,
        }


def annotate(segments: Sequence[Segment], *, start: int) -> list[dict[str, Any]]:
    """Name the place of each copy in its source and in the text; the first is at ``start``."""
    annotations = []
    for segment in segments:
        end = start + len(segment.text)
        if segment.origin == CORPUS:
            annotations.append(
                {
                    "type": "citation",
                    "start_index": start,
                    "end_index": end,
                    "url": segment.url,
                    "title": segment.title,
                    "corpus": segment.corpus,
                    "document_id": segment.document_id,
                    "char_start": segment.char_start,
                    "char_end": segment.char_end,
                    "licence": segment.licence,
                    "probability": segment.probability,
                    "information": segment.information,
                }
            )
        start = end
    return annotations


async def _iter_chunks(texts: Texts, head: _Head, *, has_usage: bool) -> AsyncIterator[bytes]:
    # where what is not final begins, and what was not sent yet: a copy is sent as it grows, and
    # annotated when it is whole
    starts, ends = ([0] * len(texts.prepared.requests) for _ in range(2))
    num_written = 0
    usage: dict[str, Any] = {"usage": None} if has_usage else {}
    try:
        async for told in texts.iter_events():
            if told is None:
                yield WAITING
                continue
            number, event = told
            if event.error is not None:
                raise event.error
            text = "".join(segment.text for segment in event.segments)
            known = text if event.growing is None else text + event.growing.text
            piece = known[ends[number] - starts[number] :]
            reason = None if event.generation is None else "length"
            choice = head.choose(number, piece, event.segments, start=starts[number], reason=reason)
            starts[number] += len(text)
            ends[number] += len(piece)
            num_written += 0 if event.generation is None else event.generation.num_tokens
            yield write_event(head.to_json([choice]) | usage)
        if has_usage:
            yield write_event(head.to_json([]) | {"usage": head.count(num_written)})
    except Exception as error:
        yield write_event(state_error(error).to_json())
        return
    yield END
