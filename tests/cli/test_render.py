"""What a reader sees: copies with numbers, and the documents worth looking up, as they fit."""

import io
import random
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console

from cog.cli.render import (
    COLOURS,
    Screen,
    SegmentWriter,
    describe,
    join_numbers,
    render_generation,
    render_source,
    shorten,
)
from cog.decoding.ranking import rank_documents
from cog.evaluation.records import parse_generation
from cog.records import CORPUS, VOCABULARY, Decoding, Generation, Segment

LONG_TITLE = "Regulation (EU) 2024/1689 laying down harmonised rules on intelligence, Article 16"
URL = "https://eur-lex.europa.eu/legal-content/EN/TXT/?uri=CELEX:32024R1689"


def copy(
    text: str,
    document_id: str,
    information: float | None = None,
    *,
    title: str = "A mill",
    corpus: str = "village",
) -> Segment:
    where = (10, 10 + len(text), "CC-BY-SA-4.0", URL)
    return Segment(text, CORPUS, 0.5, document_id, title, *where, corpus, information)


def word(text: str) -> Segment:
    return Segment(text, VOCABULARY, 0.25)


def generation(*segments: Segment, corpus: str = "village") -> Generation:
    decoding = Decoding("nucleus", 0.95, 3, 128, 64, 0.0)
    text = "".join(segment.text for segment in segments)
    seconds = {"decode": 2.0}
    return Generation("The mill", text, corpus, "a" * 64, "f", decoding, 41, 128, seconds, segments)


def many(num_documents: int) -> Generation:
    """Two copies of each document; document 0 has the most information."""
    drawn = random.Random(0)
    segments = [
        copy(f" phrase {number}", f"doc-{number}", 2.0 * num_documents - number, title=LONG_TITLE)
        for number in [*range(num_documents)] * 2
    ]
    drawn.shuffle(segments)
    return generation(*(each for segment in segments for each in (segment, word(" and"))))


def lines_of(shown: Generation, screen: Screen) -> list[str]:
    """The lines as a terminal of that width holds them."""
    file = io.StringIO()
    console = Console(file=file, width=screen.width, soft_wrap=screen.width is None)
    for part in render_generation(shown, screen):
        console.print(part)
    return file.getvalue().rstrip("\n").split("\n")


def sources_of(shown: Generation, screen: Screen) -> list[str]:
    lines = lines_of(shown, screen)
    return lines[lines.index("") + 1 :][: -1 - lines[::-1].index("")]


THREE = generation(
    copy(" of the", "a", 4.0),
    word(" wheel"),
    copy(" turns slowly in spring", "b", 40.0, title="A wheel"),
    copy(" of the", "c", 5.0),
    word(" and"),
    copy(" grinds the corn", "a", 30.0),
)


def test_copies_are_numbered_in_the_text_and_documents_ranked_below() -> None:
    lines = lines_of(THREE, Screen())
    assert lines[0] == (
        "The mill of the[1] wheel turns slowly in spring[2] of the[3] and grinds the corn[4]"
    )
    rest = f" · CC-BY-SA-4.0 · {URL}"
    assert lines[2:5] == [
        f"[2]   A wheel · b{rest}",
        f"[1,4] A mill · a{rest}",
        f"[3]   A mill · c{rest}",
    ]


def test_only_what_is_listed_has_a_number() -> None:
    lines = lines_of(THREE, Screen(max_sources=1))
    assert lines[0].endswith(" of the wheel turns slowly in spring[1] of the and grinds the corn")
    assert lines[3] == "and 2 more documents: --sources all"
    (text, *_) = render_generation(THREE, Screen(max_sources=1))
    coloured = {
        text.plain[span.start : span.end] for span in text.spans if "color" in str(span.style)
    }
    assert coloured == {segment.text for segment in THREE.segments if segment.origin == CORPUS} | {
        "[1]"
    }


def test_nothing_is_listed_of_none() -> None:
    lines = lines_of(THREE, Screen(80, 24, 0))
    assert "[" not in lines[0]
    assert lines[-3] == ""
    assert "more" not in "".join(lines)


def test_a_copy_without_information_is_ranked_by_words() -> None:
    segments = [copy(" of the", "a", 9.0), copy(" one two three", "b"), copy(" mill", "c", 1.0)]
    assert rank_documents(segments) == [[1], [0], [2]]
    assert rank_documents([]) == []


def test_documents_of_two_corpora_with_one_id_are_two() -> None:
    both = generation(
        copy(" a b", "x", corpus="north"), copy(" c", "x", corpus="south"), corpus="north+south"
    )
    first, second = sources_of(both, Screen(max_sources=5))
    assert first.startswith("[1] A mill · x · north · ")
    assert second.startswith("[2] A mill · x · south · ")
    assert "x · north" in sources_of(both, Screen(40, 10))[0]
    assert "corpus north+south" in lines_of(both, Screen())[-1]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 24), (200, 60), (40, 12), (20, 5)])
@pytest.mark.parametrize("num_documents", [0, 1, 3, 8, 40])
def test_sources_fit_the_screen(num_documents: int, width: int, height: int) -> None:
    shown = many(num_documents) if num_documents else generation(word(" is old."))
    lines = lines_of(shown, Screen(width, height))
    assert all(cell_len(line) <= width for line in lines)
    listed = [line for line in lines if line.startswith("[")]
    assert len(listed) >= min(3, num_documents)
    if len(listed) > 3:
        assert len(lines) <= height - 2
    if len(listed) < num_documents:
        assert any(f"{num_documents - len(listed)} more" in line for line in lines)
    if width >= 80:
        ids = [line.split(" · ")[1] for line in listed]
        assert ids == [f"doc-{number}" for number in range(len(listed))]


def test_ten_sources_where_nothing_says_how_many_fit() -> None:
    for screen in (Screen(), Screen(100, None)):
        assert len([line for line in lines_of(many(40), screen) if line.startswith("[")]) == 10
    assert len(sources_of(many(40), Screen(80, 24, 30))) == 31
    assert len(sources_of(many(40), Screen(80, 24, 10**9))) == 40


def test_first_colours_are_all_different() -> None:
    (text, *_) = render_generation(many(len(COLOURS)), Screen())
    colours = {str(span.style) for span in text.spans if str(span.style).startswith("color")}
    assert len(colours) == len(COLOURS)


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (None, f"{LONG_TITLE} · art_16 · CC-BY-SA-4.0 · {URL}"),
        (200, f"{LONG_TITLE} · art_16 · CC-BY-SA-4.0 · {URL}"),
        (120, f"{LONG_TITLE} · art_16 · CC-BY-SA-4.0"),
        (60, "Regulation (EU) 20…gence, Article 16 · art_16 · CC-BY-SA-4.0"),
        (40, "Regulation (EU)…nce, Article 16 · art_16"),
        (14, "Re…16 · art_16"),
        (9, "art_16"),
        (5, "ar…16"),
        (1, "…"),
    ],
)
def test_a_source_line_keeps_the_id(width: int | None, line: str) -> None:
    segment = copy(" text", "art_16", title=LONG_TITLE)
    assert render_source(segment, is_union=False, width=width).plain == line


def test_a_source_without_a_title_is_its_id() -> None:
    for title in ("", "mill"):
        segment = copy(" text", "mill", title=title)
        assert render_source(segment, is_union=False, width=60).plain == "mill · CC-BY-SA-4.0"
    two_lines = copy(" text", "m", title="An old\n  mill")
    assert render_source(two_lines, is_union=False, width=16).plain == "An old mill · m"


def test_wide_characters_count_twice() -> None:
    title = "東京都の歴史と文化に関する長い題名のある記事"
    line = render_source(copy(" text", "ja-1", title=title), is_union=False, width=30).plain
    assert line == "東京都の歴史…のある記事 · ja-1"
    assert all(cell_len(shorten(title, width)) <= width for width in range(1, 60))


def test_numbers_are_joined() -> None:
    assert join_numbers([1]) == "1"
    assert join_numbers([1, 2, 4, 5, 6, 9]) == "1,2,4-6,9"


def test_counts_say_what_was_copied() -> None:
    line = describe(generation(copy(" six sevens", "a"), word(" 12345678")))
    assert line == (
        "128 tokens in 41 steps · 55 % of the text copied from 1 document "
        "· corpus village · index aaaaaaaaaaaa · seed 3 · 64 tokens/s"
    )
    assert "0 % of the text copied from 0 documents" in describe(generation())
    at_once = replace(generation(), seconds={"retrieve": 0.0, "decode": 0.0})
    assert describe(at_once).endswith("· seed 3")  # of no time there is no speed


def test_a_stream_ends_with_the_best_copy_of_each_document(
    capsys: pytest.CaptureFixture[str],
) -> None:
    writer = SegmentWriter("The mill", is_json=False, max_sources=2)
    for segment in THREE.segments:
        writer.write(0, segment)
    writer.finish(THREE)
    text, blank, *listed, _, counts = capsys.readouterr().out.rstrip("\n").split("\n")
    assert (text, blank) == ("The mill" + THREE.text, "")
    assert listed == [
        f"“turns slowly in spring” A wheel · b · CC-BY-SA-4.0 · {URL}",
        f"“grinds the corn”        A mill · a · CC-BY-SA-4.0 · {URL}",
        "and 1 more document: --sources all",
    ]
    assert counts == describe(THREE)


def test_information_goes_to_json_and_back() -> None:
    shown = generation(copy(" a", "x", 12.3), copy(" b", "y"), word(" c"))
    content = shown.to_json()
    assert [each.get("information") for each in content["segments"]] == [12.3, None, None]
    assert "information" not in content["segments"][2]
    assert parse_generation(content).to_json() == content
    for each in content["segments"]:
        each.pop("information", None)
    assert parse_generation(content).segments[0].information is None
