"""The text that grows.

Token bytes and copied phrases go in, segments whose texts join to the continuation come out.
"""

import codecs
from dataclasses import dataclass, replace

from cog.records import CORPUS, VOCABULARY, Segment


@dataclass(frozen=True, slots=True)
class Copy:
    """Where a copied phrase stands.

    :param document_ordinal: Position of the document in the index.
    :param char_start: First character of the copy.
    """

    document_ordinal: int
    char_start: int


class GrowingText:
    """Collects what each step appended, as text.

    A token may be a part of a character. Its bytes wait for the rest, which is written to the
    segment that completes the character; bytes that never become one are written as U+FFFD where
    they stood, as every decoder does.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self.segments: list[Segment] = []
        self.copies: list[Copy | None] = []
        self._before: tuple[list[Segment], tuple[bytes, int]] = ([], (b"", 0))

    def append_token(self, token_bytes: bytes, *, probability: float) -> None:
        """Append a vocabulary token.

        :param token_bytes: Its bytes.
        :param probability: Probability of the choice.
        """
        text = self._decoder.decode(token_bytes)
        self.segments.append(Segment(text, VOCABULARY, probability))
        self.copies.append(None)

    def append_copy(self, phrase_bytes: bytes, copy: Copy, *, probability: float) -> None:
        """Append a phrase, or as many of its first tokens as there is room for.

        :param phrase_bytes: The bytes of its tokens; a last character that is cut in two is left
            out.
        :param copy: Where it stands.
        :param probability: Probability of the choice.
        """
        self._before = (self.segments[-1:], self._decoder.getstate())
        self.finish()
        text = phrase_bytes.decode(errors="ignore")
        segment = Segment(
            text,
            CORPUS,
            probability,
            char_start=copy.char_start,
            char_end=copy.char_start + len(text),
        )
        self.segments.append(segment)
        self.copies.append(copy)

    @property
    def num_final(self) -> int:
        """Number of segments that nothing can change any more.

        :returns: All of them, or all but the last if that one waits for the rest of a character.
        """
        is_waiting = bool(self._decoder.getstate()[0])
        return len(self.segments) - is_waiting

    def cut_copy(self, phrase_bytes: bytes) -> None:
        """Keep only the first bytes of the copy that was appended last.

        :param phrase_bytes: What is kept; a last character that is cut in two is left out.
        """
        copy, last = self.copies[-1], self.segments[-1]
        assert copy is not None
        text = phrase_bytes.decode(errors="ignore")
        self.segments[-1] = replace(last, text=text, char_end=copy.char_start + len(text))

    def drop_copy(self) -> None:
        """Take back the copy that was appended last, as if it had never been chosen."""
        last, waiting = self._before
        self.segments[-2:] = last
        self.copies.pop()
        self._decoder.setstate(waiting)

    def finish(self) -> None:
        """Write bytes that still wait for the rest of their character."""
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        if rest:
            last = self.segments[-1]
            self.segments[-1] = replace(last, text=last.text + rest)

    def document_ordinals(self, *, first: int = 0) -> set[int]:
        """The documents that were copied from.

        :param first: Segment to begin with.
        :returns: Their positions in the index.
        """
        return {copy.document_ordinal for copy in self.copies[first:] if copy is not None}
