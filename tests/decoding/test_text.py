"""Growing texts: parts of characters, copies that go on, and what is final."""

import pytest

from cog.decoding.text import Copy, GrowingText
from cog.records import CORPUS


def text_of(growing: GrowingText) -> str:
    growing.finish()
    return "".join(segment.text for segment in growing.segments)


def test_character_in_parts_is_written_when_it_is_whole() -> None:
    growing = GrowingText()
    added = [growing.append_token(bytes([byte]), probability=0.5) for byte in "é€".encode()]
    assert added == ["", "é", "", "", "€"]
    assert [segment.text for segment in growing.segments] == added
    assert text_of(growing) == "é€"


def test_character_broken_off_by_a_copy_is_marked_and_the_copy_is_exact() -> None:
    growing = GrowingText()
    growing.append_token("é".encode()[:1], probability=0.5)
    growing.append_copy(" the river", Copy(3, 10), probability=0.25, information=7.0)
    assert [segment.text for segment in growing.segments] == ["\ufffd", " the river"]
    copied = growing.segments[1]
    assert (copied.char_start, copied.char_end, copied.probability) == (10, 20, 0.25)
    assert (copied.origin, copied.information) == (CORPUS, 7.0)
    assert growing.document_ordinals() == {3}
    assert growing.document_ordinals(first=2) == set()


@pytest.mark.parametrize("num_bytes", [1, 2, 3])
def test_broken_character_at_the_end_is_marked(num_bytes: int) -> None:
    growing = GrowingText()
    growing.append_token(b"a", probability=0.5)
    for byte in "🙂".encode()[:num_bytes]:
        growing.append_token(bytes([byte]), probability=0.5)
    assert text_of(growing) == "a\ufffd"


def test_copies_that_are_neighbours_in_text_and_source_are_one() -> None:
    growing = GrowingText()
    growing.append_copy(" the", Copy(3, 10), probability=0.5, information=1.0)
    growing.append_copy(" river", Copy(3, 14), probability=0.25, information=6.0)
    growing.append_copy(" runs", Copy(3, 20), probability=1.0)
    (segment,) = growing.segments
    assert segment.text == " the river runs"
    assert (segment.char_start, segment.char_end) == (10, 25)
    assert (segment.probability, segment.information) == (0.125, 7.0)
    assert growing.copies == [Copy(3, 10)]


@pytest.mark.parametrize("then", [Copy(3, 15), Copy(3, 13), Copy(2, 14), Copy(3, 10)])
def test_copies_of_other_places_are_segments_of_their_own(then: Copy) -> None:
    growing = GrowingText()
    growing.append_copy(" the", Copy(3, 10), probability=0.5)
    growing.append_copy(" the", then, probability=0.5)
    assert [segment.text for segment in growing.segments] == [" the", " the"]


def test_a_token_between_keeps_copies_apart() -> None:
    growing = GrowingText()
    growing.append_copy(" the", Copy(3, 10), probability=0.5)
    growing.append_token(b",", probability=0.5)
    growing.append_copy(" river", Copy(3, 14), probability=0.5)
    assert [segment.text for segment in growing.segments] == [" the", ",", " river"]


def test_what_is_final_never_changes() -> None:
    growing = GrowingText()
    told = []

    def check(num_final: int) -> None:
        assert growing.num_final == num_final
        assert growing.segments[: len(told)] == told
        told.extend(growing.segments[len(told) : num_final])

    check(0)
    growing.append_token(b"a", probability=0.5)
    check(1)
    growing.append_copy(" the", Copy(3, 10), probability=0.5)
    check(1)  # it may go on
    growing.append_copy(" river", Copy(3, 14), probability=0.5)
    check(1)
    growing.append_copy(" the", Copy(1, 0), probability=0.5)
    check(2)
    for byte, num_final in zip("€".encode()[:2], (3, 4), strict=True):
        growing.append_token(bytes([byte]), probability=0.5)
        check(num_final)
    growing.append_copy(" the", Copy(1, 0), probability=0.5)
    check(5)
    growing.finish()
    check(6)
    assert "".join(segment.text for segment in told) == "a the river the\ufffd the"
