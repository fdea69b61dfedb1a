"""Lists of sources: merged, with attribution, licence and changes, and nothing that breaks out."""

import json
import re
from typing import Any

import pytest

from cog.cards import Card, parse_card
from cog.decoding.source_list import FORMATS
from cog.decoding.sources import collect_sources, get_licence_url
from cog.errors import GenerationError
from tests.tiny_project import VILLAGE_CARD

CARD = parse_card(
    {
        **VILLAGE_CARD,
        "licence": {
            "id": "CC-BY-SA-4.0",
            "url": "https://example.org/by-sa",
            "attribution": "Wi & Co",
        },
    },
    "village.yaml",
)


def card_of(corpus_id: str) -> Card | None:
    return CARD if corpus_id == "village" else None


def copy(text: str, document_id: str = "mill", **changes: str) -> dict[str, Any]:
    return {
        "text": text,
        "from": "corpus",
        "corpus": "village",
        "document_id": document_id,
        "title": "The old mill",
        "char_start": 0,
        "char_end": len(text),
        "licence": "CC-BY-SA-4.0",
        "url": "https://example.org/mill?a=1&b=2",
        "probability": 0.5,
        **changes,
    }


def line(*segments: dict[str, Any], **keys: Any) -> str:  # noqa: ANN401
    return json.dumps({"corpus": "village", "segments": list(segments), **keys})


TOKEN = {"text": ",", "from": "vocabulary", "probability": 0.1}
LINES = [
    line(copy("The old mill"), TOKEN, copy(" stands on")),
    "",
    line(copy("A", "weir", title="", url="", corpus="gone", licence="MIT"), copy(" left bank")),
]


def test_repeated_sources_are_merged() -> None:
    mill, weir = collect_sources(LINES, card_of=card_of, where="x")
    assert (mill.num_copies, mill.num_words, mill.attribution) == (3, 7, "Wi & Co")
    assert mill.licence_url == "https://example.org/by-sa"
    assert (weir.title, weir.corpus, weir.attribution, weir.num_words) == ("weir", "gone", "", 1)


def test_markdown() -> None:
    assert FORMATS["markdown"](collect_sources(LINES, card_of=card_of, where="x")) == (
        "## Sources\n\n"
        "1. [The old mill](<https://example.org/mill?a=1&b=2>), by Wi & Co, document mill of "
        "village. Licence: [CC-BY-SA-4.0](<https://example.org/by-sa>). Changes: 3 excerpts "
        "(7 words in all) joined with other text by a program.\n"
        "2. weir, of gone. Licence: MIT. Changes: 1 excerpt (1 word in all) joined with other text "
        "by a program.\n"
    )


def test_html() -> None:
    text = FORMATS["html"](collect_sources(LINES, card_of=card_of, where="x"))
    assert (
        '<li><a href="https://example.org/mill?a=1&amp;b=2">The old mill</a>, by Wi &amp; Co, '
        'document mill of village. Licence: <a href="https://example.org/by-sa">CC-BY-SA-4.0</a>. '
        "Changes: 3 excerpts (7 words in all) joined with other text by a program.</li>"
    ) in text


def test_bibtex() -> None:
    text = FORMATS["bibtex"](collect_sources(LINES, card_of=card_of, where="x"))
    assert text.startswith("@misc{village:mill,\n  title = {{The old mill}},\n")
    assert "  author = {{Wi \\& Co}},\n" in text
    assert "  url = {https://example.org/mill?a=1&b=2},\n" in text
    assert "  note = {Licence: CC-BY-SA-4.0 (https://example.org/by-sa). Changes: 3" in text
    assert "@misc{gone:weir," in text


def test_keys_of_bibtex_differ_in_more_than_case() -> None:
    lines = [line(copy("x", name)) for name in ("Mill", "mill", "MILL")]
    text = FORMATS["bibtex"](collect_sources(lines, card_of=card_of, where="x"))
    keys = re.findall(r"@misc\{(.*),", text)
    assert len({key.lower() for key in keys}) == 3


@pytest.mark.parametrize("kind", FORMATS)
def test_titles_and_addresses_cannot_break_out(kind: str) -> None:
    bad = copy("x", "a}b", title='<script>"]( # }\n*', url="javascript:alert(1)")
    text = FORMATS[kind](collect_sources([line(bad)], card_of=card_of, where="x"))
    if kind == "html":
        assert "<script>" not in text
        assert "javascript" not in text
    if kind == "markdown":
        assert "\\<script\\>" in text
        assert "](<javascript" not in text
    if kind == "bibtex":
        assert text.count("{") == text.count("}")
    assert len(FORMATS[kind]([])) < 120


@pytest.mark.parametrize(
    ("licence", "url"),
    [
        ("CC-BY-SA-4.0", "https://creativecommons.org/licenses/by-sa/4.0/"),
        ("CC-BY-3.0", "https://creativecommons.org/licenses/by/3.0/"),
        ("cc0-1.0", "https://creativecommons.org/publicdomain/zero/1.0/"),
        ("Apache-2.0", "https://spdx.org/licenses/Apache-2.0.html"),
        ("LicenseRef-own", ""),
        ("EU reuse", ""),
        ("", ""),
    ],
)
def test_addresses_of_licences(licence: str, url: str) -> None:
    assert get_licence_url(licence, None) == url


def test_lines_of_segments_are_passed_over() -> None:
    streamed = [json.dumps(copy("The old mill")), json.dumps(TOKEN), line(copy("The old mill"))]
    (mill,) = collect_sources(streamed, card_of=card_of, where="x")
    assert mill.num_copies == 1


@pytest.mark.parametrize(
    "lines",
    [["{"], ["[]"], ["3"], ['{"text": "x"}'], ['{"segments": [{"from": "corpus"}]}'], [], [""]],
)
def test_what_is_no_generation_is_refused(lines: list[str]) -> None:
    with pytest.raises(GenerationError, match=r"texts\.jsonl"):
        collect_sources(lines, card_of=card_of, where="texts.jsonl")


@pytest.mark.parametrize("name", ["corpus", "document_id", "title", "licence", "url"])
def test_a_source_that_is_no_text_is_refused(name: str) -> None:
    for value in (3, ["x"], {"a": 1}, "\ud800"):
        wrong = [line({**copy("The old mill"), name: value})]
        with pytest.raises(GenerationError, match=r"texts\.jsonl, line 1 must be a generation"):
            collect_sources(wrong, card_of=card_of, where="texts.jsonl")
    with pytest.raises(GenerationError, match="corpus must be a text"):
        collect_sources([line(corpus=3)], card_of=card_of, where="x")
