"""``POST /generate`` on the tiny project: the JSON of ``cog generate``, whole and streamed."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from cog.baselines.transformer import TransformerGenerator
from cog.corpus.documents import DocumentStore
from cog.decoding.request import Request
from cog.index.versions.activation import switch_corpus
from cog.paths import ProjectPaths
from cog.records import Decoding
from tests.serve.serving import RunningServer, run_server

COPYING = {"phrase_bias": 3.0}


def check_citations(server: RunningServer, text: dict[str, Any]) -> int:
    assert text["text"] == "".join(segment["text"] for segment in text["segments"])
    copies = [segment for segment in text["segments"] if segment["from"] == "corpus"]
    for copy in copies:
        store = DocumentStore(server.paths.corpus(copy["corpus"]).documents)
        source = store.get_document(copy["document_id"]).text
        assert source[copy["char_start"] : copy["char_end"]] == copy["text"]
        assert copy["corpus"] in text["corpus"].split("+")
    return len(copies)


def test_texts_are_those_of_the_command_line(server: RunningServer) -> None:
    body = {"prefix": ["The old mill", "A"], "num_return": 2, "decoding": {"seed": 5, **COPYING}}
    found = server.post("/generate", body)
    assert found.status == 200
    texts = found.json["generations"]
    assert [(each["number"], each["prefix"]) for each in texts] == [
        (0, "The old mill"),
        (1, "The old mill"),
        (2, "A"),
        (3, "A"),
    ]
    assert [each["decoding"]["seed"] for each in texts] == [5, 6, 5, 6]
    assert sum(check_citations(server, each) for each in texts)
    assert all(each["unread_tokens"] == 0 and each["num_tokens"] == 12 for each in texts)


def test_systems_are_those_of_an_evaluation(server: RunningServer) -> None:
    decoding = {"seed": 5, "verify": "absolute", "verify_threshold": 1e-3, **COPYING}
    body = {"prefix": "The old mill", "decoding": decoding}
    texts = {}
    for name in ("cog", "transformer", "cog-tokens", "cog-phrases", "cog-no-spans"):
        found = server.post("/generate", {**body, "system": name})
        (texts[name],) = found.json["generations"]
        assert texts[name]["system"] == name
        check_citations(server, texts[name])
    model = server.engine.model
    own = TransformerGenerator(model, corpus_id="village")
    wanted = Decoding(max_new_tokens=12, seed=5, phrase_bias=3.0)
    (alone,) = own.generate([Request("The old mill", wanted)])
    assert texts["transformer"]["text"] == alone.text
    assert texts["cog-tokens"]["decoding"]["verify"] == "absolute"
    assert check_citations(server, texts["cog-tokens"]) == 0
    copied = {name: len(text["segments"]) for name, text in texts.items()}
    assert copied["cog-phrases"] < copied["transformer"] == 12
    refused = server.post("/generate", {**body, "system": "retro"})
    assert (refused.status, refused.error["param"]) == (400, "system")


def test_a_deterministic_text_is_the_same_beside_others(server: RunningServer) -> None:
    body = {"prefix": "The old mill", "deterministic": True, "decoding": COPYING}
    (alone,) = server.post("/generate", body).json["generations"]
    assert alone["deterministic"]
    many = {"prefix": ["A", "The", "The forest"], "num_return": 5, "decoding": COPYING}
    with ThreadPoolExecutor(2) as pool:
        beside = pool.submit(server.post, "/generate", many)
        (again,) = server.post("/generate", body).json["generations"]
        assert not any(each["deterministic"] for each in beside.result().json["generations"])
    assert again["segments"] == alone["segments"]  # to the last bit of each probability


def test_a_stream_tells_every_segment_once_and_then_the_whole(server: RunningServer) -> None:
    body = {"prefix": ["The old mill", "The"], "stream": True, "decoding": COPYING}
    events = server.post("/generate", body).events
    names = [name for name, _ in events]
    assert names[0] == "begin"
    assert names[-1] == "done"
    begin = events[0][1]
    assert begin["corpus"] == "village"
    assert [each["prefix"] for each in begin["texts"]] == body["prefix"]
    assert begin["decoding"]["phrase_bias"] == 3.0
    for number in range(2):
        told = [data for name, data in events if name == "segment" and data["number"] == number]
        (whole,) = [
            d["generation"] for n, d in events if n == "generation" if d["number"] == number
        ]
        assert [each["segment"] for each in told] == whole["segments"]
        text = "".join(each["segment"]["text"] for each in told)
        assert text == whole["text"]
        grown = [data for name, data in events if name == "growing" and data["number"] == number]
        assert grown
        for each in told + grown:
            piece = each["segment"]["text"]
            assert text[each["start"] : each["start"] + len(piece)] == piece
        whole_copies = {each["start"]: each["segment"].get("document_id") for each in told}
        for each in grown:
            assert each["segment"]["document_id"] == whole_copies[each["start"]]
        check_citations(server, whole)


def test_what_is_switched_on_outside_shows_in_the_next_request(server: RunningServer) -> None:
    body = {"prefix": "The old mill", "decoding": COPYING}
    try:
        for corpus_id in ("other", "village", "village+other"):
            after = switch_corpus(server.paths, corpus_id).after
            (text,) = server.post("/generate", body).json["generations"]
            assert (text["corpus"], text["index"]) == (corpus_id, after.index)
            check_citations(server, text)
    finally:
        switch_corpus(server.paths, "village")


def test_rules_of_what_may_be_copied_hold(server: RunningServer) -> None:
    body = {"prefix": "The old mill", "corpus": "village+other", "decoding": COPYING}
    allowed = server.post("/generate", {**body, "allow_licences": ["MIT"]}).json
    copies = [each for each in allowed["generations"][0]["segments"] if each["from"] == "corpus"]
    assert {each["licence"] for each in copies} == {"MIT"}
    refused = server.post("/generate", {**body, "deny_licences": ["none such"]})
    assert refused.status == 400
    assert "none such" in refused.error["message"]


@pytest.mark.parametrize(
    ("body", "status", "param", "message"),
    [
        ({}, 400, "prefix", "prefix is missing"),
        ({"prefix": 3}, 400, "prefix", "must be a text or a list of texts; found: 3"),
        ({"prefix": []}, 400, "prefix", "must hold a text"),
        ({"prefix": "a", "stream": "yes"}, 400, "stream", "must be true or false"),
        ({"prefix": "a", "num_return": -1}, 400, "num_return", "from 1"),
        ({"prefix": "a", "num_return": 65}, 400, "num_return", "64 texts at most"),
        ({"prefix": ["a"] * 65}, 400, "prefix", "64 texts at most"),
        ({"prefix": "a" * 100_001}, 400, "prefix", "100000 characters at most"),
        ({"prefix": "\ud800"}, 400, None, "Unicode text"),
        ({"prefix": "a", "colour": 1}, 400, "colour", "is no known key"),
        ({"prefix": "a", "decoding": {"top_q": 1}}, 400, "decoding.top_q", "did you mean top_"),
        ({"prefix": "a", "foo": 1}, 400, "foo", "next: take one of prefix, corpus,"),
        ({"prefix": "a", "decoding": {"top_p": 0}}, 400, "decoding.top_p", "above 0"),
        (
            {"prefix": "a", "decoding": {"max_new_tokens": 10**6}},
            400,
            "decoding.max_new_tokens",
            "",
        ),
        ({"prefix": "a", "corpus": "nowhere"}, 404, None, "nowhere"),
        ({"prefix": "a", "corpus": "../village"}, 404, None, "corpus id"),
        ({"prefix": "a", "corpus": "hamlet"}, 409, None, "must have an index"),
        ({"prefix": "a", "corpus": "village", "index": "00"}, 409, None, "needs one index"),
    ],
)
def test_what_cannot_be_used_is_named(
    server: RunningServer, body: object, status: int, param: str | None, message: str
) -> None:
    found = server.post("/generate", body)
    assert found.status == status
    assert found.error["param"] == param
    assert message in found.error["message"]


def test_an_index_that_is_not_built_comes_with_the_command(server: RunningServer) -> None:
    error = server.post("/generate", {"prefix": "a", "corpus": "hamlet"}).error
    assert error["type"] == "conflict_error"
    assert error["run"].endswith("cog index build hamlet")


def test_an_index_of_another_model_comes_with_the_command(own_project: ProjectPaths) -> None:
    manifest = own_project.corpus("other").manifest
    content = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(content | {"model": "0" * 64}))
    with run_server(own_project) as server:
        found = server.post("/generate", {"prefix": "a", "corpus": "other"})
        assert (found.status, found.error["code"]) == (409, "index_mismatch")
        assert found.error["run"] == "cog index build other"
        assert [each["id"] for each in server.get("/v1/models").json["data"]] == ["village"]
        assert server.post("/generate", {"prefix": "a"}).status == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff",
        b'{"prefix": NaN}',
        b"[1]",
        b"[" * 100_000,
        b'{"prefix": Infinity}',
        b"3",
        b'{"prefix": "a", "prefix": "b"}',
    ],
)
def test_what_is_no_json_object_is_refused(server: RunningServer, body: bytes) -> None:
    found = server.post("/generate", body)
    assert found.status == 400
    assert found.error["code"] == "no_json"
