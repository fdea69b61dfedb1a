"""Joins: the end of what is written goes in, how a word may follow comes out.

A word carries its leading space. Where it has none in its document (at the very start, after a
bracket or a line break), copying it behind a letter would glue two words together; where it has
one, copying it behind a space or an opening bracket would leave a gap.
"""

TAIL_BYTES = 4  # as many as the longest character has
CLOSING = frozenset(".,;:!?)]}%”»…")
OPENING = frozenset("([{“«‘„‚")


def extend_tail(tail: bytes, more: bytes) -> bytes:
    """The last bytes of a text that grew, from its last bytes before and what was appended."""
    return (tail + more)[-TAIL_BYTES:]


def needs_space(tail: bytes) -> bool:
    """Whether a word that follows must bring its own space.

    It must behind a letter, a digit or a closing mark; not at the start, behind white space, and
    behind brackets, dashes and quotes that may open.
    """
    last = tail.decode(errors="replace")[-1:]
    return last.isalnum() or last in CLOSING and last != ""


def refuses_space(tail: bytes) -> bool:
    """Whether a word may bring no space: at the start, behind white space or a mark that opens."""
    last = tail.decode(errors="replace")[-1:]
    return not last or last.isspace() or last in OPENING
