"""Cards: the schema, the slug rule, and the docs that list every field."""

import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from cog.cards import Card, check_corpus_id, format_card, parse_card
from cog.errors import InvalidCardError
from tests.corpus.building import make_card, make_content
from tests.tiny_project import HAMLET_CARD


@pytest.mark.parametrize("corpus_id", ["law-mt", "en-wiki-0.1pct", "a", "0", "x" * 63])
def test_a_slug_is_accepted(corpus_id: str) -> None:
    assert check_corpus_id(corpus_id) == corpus_id


@pytest.mark.parametrize(
    "corpus_id",
    ["law/mt", "law mt", "法律", "a@b", ".", "..", "-x", "x-", "x.", "a..b", "Law", "", "x" * 300]
    + ["con", "nul.txt", "com1", "a+b", "a_b", "law\n", "\x00"],
)
def test_a_bad_corpus_id_is_refused(corpus_id: str) -> None:
    with pytest.raises(InvalidCardError, match="a corpus id has 1 to 63 characters") as caught:
        check_corpus_id(corpus_id)
    assert len(str(caught.value)) < 400


def test_a_card_survives_the_round_trip() -> None:
    card = make_card(
        format__encoding=["utf-8", "cp1252"],
        source__members=["*.txt"],
        format__schema={"a": "text?"},
    )
    assert parse_card(format_card(card), "village.yaml") == card
    assert list(format_card(card)) == [field.name for field in fields(Card)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"titel": "x"}, r"village.yaml: titel is no known key; next: did you mean title\?"),
        ({"format__encodng": "x"}, r"format.encodng is no known key; .* mean encoding\?"),
        ({"source__version": "1"}, r"source.version is no field of type files, which has path"),
        ({"format__kind": "pdf"}, r"format.kind must be one of text, jsonl"),
        ({"format__encoding": "utf-9"}, r"format.encoding must be an encoding such as .*'utf-9'"),
        ({"format__encoding": "rot13"}, r"format.encoding must be an encoding"),
        ({"format__documents": "row"}, r"format.documents of kind text must not be 'row'"),
        ({"format__documents": "heading"}, r"format.heading belongs to documents: heading"),
        ({"format__query": "SELECT 1"}, r"format.query belongs to kind sqlite"),
        ({"format__kind": "jsonl"}, r"format.fields.text must name a column"),
        ({"format__fields__text": 3}, r"format.fields.text must be a text or a list"),
        ({"filters__min_words": -1}, r"filters.min_words must be a whole number from 0"),
        ({"filters__max_words": 0}, r"filters.max_words must be a whole number from 1"),
        ({"filters__min_words": True}, r"filters.min_words must be a whole number"),
        (
            {"prompts": {"held_out": 1, "seed": 0}},
            r"prompts.held_out must be a number from 0 to below 1; found: 1",
        ),
        (
            {"subset": {"proportion": 0, "seed": 0}},
            r"subset.proportion must be a number above 0 and up to 1",
        ),
        (
            {"subset": {"proportion": 1, "seed": 0, "shard": {"number": 4, "of": 3}}},
            r"subset.shard.number must be at most of \(3\); found: 4",
        ),
        ({"deduplicate": "fuzzy"}, r"deduplicate must be one of exact, near, none"),
        (
            {"filters__near_threshold": 0.2},
            r"filters.near_threshold must be a number from 0.5 to 1",
        ),
        ({"format__schema": {"a": "string"}}, r"format.schema.a must be one of text, text\?"),
        ({"format__schema": {1: "text"}}, r"format.schema must have texts as keys"),
        ({"format__schema": []}, r"format.schema must be a mapping"),
        ({"format__encoding": ["detect", "utf-8"]}, r"format.encoding must be an encoding"),
        ({"format__encoding": "idna"}, r"format.encoding must be an encoding"),
        ({"format__encoding": "a\x00b"}, r"format.encoding must be without control"),
        ({"title": "a\ud800"}, r"title must be without control characters or lone surrogates"),
        ({"ti\ud800": "x"}, r"'ti\\ud800' is no known key"),
        ({"licence": None}, r"licence must be a mapping"),
        ({"title": " "}, r"title must be a text"),
        ({"normaliser": None}, r"normaliser may be null only with extends"),
        ({"extends": "other"}, r"source must be null: it comes from other"),
        ({"id": "Village"}, r"id must be a corpus id, which has 1 to 63"),
        ({"source": {"type": "s3"}}, r"source.type must be one of wheel, hub, files"),
        ({"source": {}}, r"source.type is missing"),
    ],
)
def test_a_wrong_field_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidCardError, match=message):
        make_card(**changes)


def test_a_wrong_pattern_or_checksum_is_named() -> None:
    with pytest.raises(InvalidCardError, match="format.heading must be a regular expression"):
        make_card(format__documents="heading", format__heading="(")
    wheel = {"type": "wheel", "package": "p", "version": "1", "sha256": "a" * 64, "members": ["*"]}
    for key, value in (
        ("sha256", "ab"),
        ("package", "p @ file:///p.tar.gz"),
        ("package", "--index-url=https://example.org"),
        ("package", "p[extra]"),
        ("version", "1.*"),
        ("version", "1 @ file:///p.tar.gz"),
    ):
        with pytest.raises(InvalidCardError, match=rf"source\.{key} must be \w+ .*found: '"):
            make_card(source={**wheel, key: value})
    with pytest.raises(InvalidCardError, match="source.members is needed for type wheel"):
        make_card(source={**wheel, "members": []})


def test_a_missing_key_is_named() -> None:
    content = make_content()
    del content["subset"]
    with pytest.raises(InvalidCardError, match="subset is missing"):
        parse_card(content, "village.yaml")
    with pytest.raises(InvalidCardError, match=r"village.yaml must be a mapping; found: \[\]"):
        parse_card([], "village.yaml")


def test_a_card_may_not_extend_itself() -> None:
    with pytest.raises(InvalidCardError, match="extends must name another card"):
        parse_card({**HAMLET_CARD, "extends": "hamlet"}, "hamlet.yaml")


def list_fields(record: type, prefix: str = "") -> set[str]:
    names = set()
    hints = get_type_hints(record)
    for field in fields(record):  # type: ignore[arg-type]
        kinds = [hints[field.name], *get_args(hints[field.name])]
        below = next((kind for kind in kinds if is_dataclass(kind)), None)
        names.add(f"{prefix}{field.name}")
        if isinstance(below, type):
            names |= list_fields(below, f"{prefix}{field.name}.")
    return names


@pytest.mark.parametrize("name", ["docs/cards.md", "registry/README.md"])
def test_the_docs_list_every_field_and_no_other(repository: Path, name: str) -> None:
    text = (repository / name).read_text(encoding="utf-8").split("## Fields of a card")[1]
    documented = set(re.findall(r"^\| `([a-z_0-9.]+)` \|", text, flags=re.MULTILINE))
    rowless = {"licence", "format.fields", "filters"}  # mappings that need no row of their own
    assert documented | rowless == list_fields(Card)


def test_the_address_of_an_index_is_checked_and_may_be_left_out() -> None:
    without = {key: value for key, value in make_content().items() if key != "index"}
    assert parse_card(without, "village.yaml").index is None
    card = parse_card({**without, "index": {"uri": "s3://bucket/folder/"}}, "village.yaml")
    assert format_card(card)["index"] == {"uri": "s3://bucket/folder"}
    for uri in ("", "gs://bucket", "s3://", "s3://B_/folder", "s3://bucket/a b", "corpora"):
        with pytest.raises(InvalidCardError, match=r"index\.uri must "):
            parse_card({**without, "index": {"uri": uri}}, "village.yaml")
    with pytest.raises(
        InvalidCardError, match=r"index\.url is no known key; next: did you mean uri\?"
    ):
        parse_card({**without, "index": {"url": "s3://bucket"}}, "village.yaml")
