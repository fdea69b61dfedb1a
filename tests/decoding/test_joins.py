"""Joins: where a word must bring a space, and where it must not."""

import pytest

from cog.decoding.joins import extend_tail, needs_space, refuses_space


@pytest.mark.parametrize(
    ("written", "needs", "refuses"),
    [
        ("", False, True),
        ("a ", False, True),
        ("a\n", False, True),
        ("a (", False, True),
        ("a “", False, True),
        ("twenty-", False, False),
        ("of", True, False),
        ("1", True, False),
        ("é", True, False),
        ("end.", True, False),
        ("b)", True, False),
        ("b»", True, False),
        ("🙂", False, False),
    ],
)
def test_space_is_needed_behind_words_and_refused_behind_space(
    written: str, needs: bool, refuses: bool
) -> None:
    tail = extend_tail(b"", written.encode())
    assert (needs_space(tail), refuses_space(tail)) == (needs, refuses)
    if written:
        tail = extend_tail("🙂 word (".encode(), written.encode())
        assert (needs_space(tail), refuses_space(tail)) == (needs, refuses)


def test_tail_holds_a_character_that_came_in_parts() -> None:
    tail = b"abcdef"
    for byte in "é".encode():
        tail = extend_tail(tail, bytes([byte]))
    assert needs_space(tail)
    assert len(tail) == 4
