"""``/v1`` as OpenAI's own client sees it."""

from collections.abc import Iterator

import openai
import pytest

from tests.serve.serving import RunningServer

EXTRA = {"decoding": {"phrase_bias": 3.0}}


@pytest.fixture
def client(server: RunningServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_a_completion_cites_every_copy_in_text_and_source(
    server: RunningServer, client: openai.OpenAI
) -> None:
    found = client.completions.create(
        model="village",
        prompt=["The old mill", "A"],
        max_tokens=16,
        n=2,
        seed=3,
        temperature=0.9,
        top_p=0.9,
        extra_body=EXTRA,
    )
    assert [choice.index for choice in found.choices] == [0, 1, 2, 3]
    assert found.usage is not None
    assert found.usage.completion_tokens == 64
    assert found.usage.total_tokens == 64 + found.usage.prompt_tokens
    assert all(choice.finish_reason == "length" for choice in found.choices)
    notes = [(choice.text, note) for choice in found.choices for note in choice.annotations]
    assert notes
    for text, note in notes:
        path = f"/documents/village/{note['document_id']}?index={found.cog['index']}"
        source = server.get(path).json["text"]
        assert (
            text[note["start_index"] : note["end_index"]]
            == source[note["char_start"] : note["char_end"]]
        )


def test_a_prompt_beyond_the_context_says_how_much_of_it_was_not_read(
    client: openai.OpenAI,
) -> None:
    prompts = ["The old mill", "The old mill stood by the river. " * 200]
    found = client.completions.create(model="village", prompt=prompts, max_tokens=2)
    short, long = found.choices
    assert short.unread_tokens == 0
    assert long.unread_tokens > 0


def test_a_stream_joins_to_the_same_text(client: openai.OpenAI) -> None:
    asked = {"model": "village", "prompt": "The old mill", "max_tokens": 16, "extra_body": EXTRA}
    asked["logit_bias"] = {}  # nothing is biased
    whole = client.completions.create(**asked).choices[0]
    chunks = list(
        client.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    )
    choices = [choice for chunk in chunks for choice in chunk.choices]
    assert "".join(choice.text for choice in choices) == whole.text
    assert [note for choice in choices for note in choice.annotations] == whole.annotations
    assert [choice.finish_reason for choice in choices][-1] == "length"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 16


def test_temperature_zero_is_greedy(client: openai.OpenAI) -> None:
    texts = {
        client.completions.create(
            model="village", prompt="The", temperature=0, seed=seed, max_tokens=8
        )
        .choices[0]
        .text
        for seed in (1, 2)
    }
    assert len(texts) == 1


def test_models_are_the_corpora_that_can_be_written_from(client: openai.OpenAI) -> None:
    models = {model.id: model for model in client.models.list()}
    assert set(models) == {"other", "village"}
    assert models["village"].is_active
    assert models["village"].title == "A village"
    assert client.models.retrieve("other").licence == "CC-BY-4.0"
    union = client.models.retrieve("other+village")
    assert union.words == models["other"].words + models["village"].words
    assert not union.is_active
    with pytest.raises(openai.NotFoundError, match="nowhere"):
        client.models.retrieve("nowhere")


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"model": "nowhere"}, openai.NotFoundError, "nowhere"),
        ({"model": "hamlet"}, openai.ConflictError, "must have an index"),
        ({"logprobs": 3}, openai.BadRequestError, "logprobs is not supported"),
        ({"stop": ["."]}, openai.BadRequestError, "stop is not supported"),
        ({"best_of": 4}, openai.BadRequestError, "best_of must be n"),
        ({"prompt": [1, 2]}, openai.BadRequestError, "prompt must be a text or a list of texts"),
        ({"temperature": -1}, openai.BadRequestError, "temperature"),
        ({"temperature": 0.001}, openai.BadRequestError, "temperature must be a number from 0.01"),
        ({"max_tokens": 0}, openai.BadRequestError, "max_tokens must be a whole number from 1"),
        ({"max_tokens": 4000}, openai.BadRequestError, "max_tokens must be 2048 at most"),
        ({"n": 100}, openai.BadRequestError, "n must ask for 64 texts at most"),
        ({"extra_body": {"colour": 1}}, openai.BadRequestError, "colour is no known key"),
    ],
)
def test_failures_are_the_clients_own_errors(
    client: openai.OpenAI, changes: dict[str, object], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        client.completions.create(**{"model": "village", "prompt": "A", **changes})
