"""Lines become documents, by each rule."""

import pytest

from cog.corpus import parts
from cog.corpus.decoding import Line
from cog.corpus.reassembly import iter_units

WIKITEXT = """ \n = Old Mill = \n \n The mill stands . \n \n = = Wheel = = \n \n It turned .
 Goals :
 = Goals ; A = \n Assists \n \n = Bridge ( river ) = \n \n Four arches . \n"""


def split(text: str, documents: str, heading: str | None = None) -> list[tuple[int, str, str, str]]:
    lines = [Line(number, line) for number, line in enumerate(text.split("\n"), start=1)]
    units = iter_units(lines, documents=documents, heading=heading)
    return [(unit.number, unit.key, unit.title, unit.text) for unit in units]


def test_file_keeps_every_line() -> None:
    assert split("a\n\nb", "file") == [(1, "", "", "a\n\nb")]


def test_line_makes_each_line_a_document() -> None:
    assert [unit[3] for unit in split("a\n\nb", "line")] == ["a", "", "b"]


def test_blank_lines_separate() -> None:
    assert split("\na\nb\n\n \t\nc\n", "blank-line") == [(2, "", "", "a\nb"), (6, "", "", "c")]


def test_wikitext_titles_stand_alone() -> None:
    units = split(WIKITEXT, "heading", "wikitext")
    assert [(unit[0], unit[2]) for unit in units] == [(2, "Old Mill"), (13, "Bridge ( river )")]
    assert " = Goals ; A = " in units[0][3]
    assert " = = Wheel = = " in units[0][3]
    assert units[1][3] == " Four arches . "


def test_a_title_at_both_ends_of_a_file_counts() -> None:
    units = split(" = A = \n \n x \n \n = B = ", "heading", "wikitext")
    assert [(unit[2], unit[3]) for unit in units] == [("A", " x "), ("B", "")]


def test_a_pattern_gives_title_and_id() -> None:
    pattern = r"= CELEX (?P<id>\S+) \((?P<title>.+)\) ="
    text = "before\n= CELEX 31996L0009 (1996-03-11) =\none\n\n= the mean;\ntwo"
    assert split(text, "heading", pattern) == [
        (1, "", "", "before"),
        (2, "31996L0009", "1996-03-11", "one\n= the mean;\ntwo"),
    ]


@pytest.mark.parametrize("documents", ["file", "line", "blank-line", "heading"])
def test_a_document_beyond_the_limit_comes_in_parts(
    monkeypatch: pytest.MonkeyPatch, documents: str
) -> None:
    monkeypatch.setattr(parts, "MAX_DOCUMENT_CHARACTERS", 10)
    lines = [Line(number, "x" * 4) for number in range(1, 1000)]
    heading = "#.*" if documents == "heading" else None
    units = list(iter_units(lines, documents=documents, heading=heading))
    text = "".join(unit.text for unit in units)
    assert text.count("x") == 4 * 999
    assert all(unit.num_characters <= 10 for unit in units)
    if documents != "line":
        assert [unit.part for unit in units] == list(range(1, len(units) + 1))
        assert text == "\n".join(["x" * 4] * 999)


def test_pieces_of_a_line_are_joined_and_are_no_headings() -> None:
    lines = [Line(1, "# a", is_end=False), Line(1, " b", is_start=False), Line(2, "# c")]
    units = list(iter_units(lines, documents="heading", heading="#.*"))
    assert [(unit.number, unit.text) for unit in units] == [(1, "# a b"), (2, "")]


def test_an_unknown_rule_is_a_programmer_mistake() -> None:
    with pytest.raises(ValueError, match="no rule 'page'"):
        iter_units([], documents="page", heading=None)
