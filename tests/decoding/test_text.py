"""Growing texts: partial characters, copies and cuts."""

from cog.decoding.text import Copy, GrowingText


def text_of(growing: GrowingText) -> str:
    growing.finish()
    return "".join(segment.text for segment in growing.segments)


def test_character_in_parts_is_written_when_it_is_whole() -> None:
    growing = GrowingText()
    for byte in "é".encode():
        growing.append_token(bytes([byte]), probability=0.5)
    assert [segment.text for segment in growing.segments] == ["", "é"]
    assert text_of(growing) == "é"


def test_character_broken_off_by_a_copy_is_marked_and_the_copy_is_exact() -> None:
    growing = GrowingText()
    growing.append_token("é".encode()[:1], probability=0.5)
    growing.append_copy(b" the river", Copy(3, 10), probability=0.25)
    assert [segment.text for segment in growing.segments] == ["\ufffd", " the river"]
    copied = growing.segments[1]
    assert (copied.char_start, copied.char_end, copied.probability) == (10, 20, 0.25)
    assert growing.document_ordinals() == {3}


def test_broken_character_at_the_end_is_marked() -> None:
    growing = GrowingText()
    growing.append_token(b"a", probability=0.5)
    growing.append_token("é".encode()[:1], probability=0.5)
    assert text_of(growing) == "a\ufffd"


def test_copy_cut_inside_a_character_ends_before_it() -> None:
    growing = GrowingText()
    growing.append_copy(" café".encode()[:-1], Copy(0, 4), probability=0.5)
    assert growing.segments[0].text == " caf"
    assert growing.segments[0].char_end == 8
    assert text_of(growing) == " caf"
