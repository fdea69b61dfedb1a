"""The text that grows.

Token bytes and copied words go in, segments whose texts join to the continuation come out.
"""

import codecs
from dataclasses import dataclass, replace

from cog.records import CORPUS, VOCABULARY, Segment


@dataclass(frozen=True, slots=True)
class Copy:
    """Where a copy stands.

    :param document_ordinal: Position of the document in the index.
    :param char_start: First character of the copy.
    """

    document_ordinal: int
    char_start: int


class GrowingText:
    """Collects what was written, as text; nothing that was written is taken back.

    A token may be a part of a character. Its bytes wait for the rest, which is written to the
    segment that completes the character; bytes that never become one are written as U+FFFD where
    they stood, as every decoder does.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._is_finished = False
        self.segments: list[Segment] = []
        self.copies: list[Copy | None] = []

    def append_token(self, token_bytes: bytes, *, probability: float) -> str:
        """Append the bytes of a vocabulary token, and give what it added to the text."""
        text = self._decoder.decode(token_bytes)
        self.segments.append(Segment(text, VOCABULARY, probability))
        self.copies.append(None)
        return text

    def append_copy(
        self, text: str, copy: Copy, *, probability: float, information: float | None = None
    ) -> None:
        """Append copied words; where they go on from the last copy, the two become one.

        The probability is that of the choice; of two, their product. Information is in bits.
        """
        self._flush()
        end = copy.char_start + len(text)
        before = self.copies[-1] if self.copies else None
        last = self.segments[-1] if self.segments else None
        if (
            before is not None
            and last is not None
            and before.document_ordinal == copy.document_ordinal
            and last.char_end == copy.char_start
        ):
            self.segments[-1] = replace(
                last,
                text=last.text + text,
                probability=last.probability * probability,
                char_end=end,
                information=round((last.information or 0.0) + (information or 0.0), 1),
            )
            return
        self.segments.append(
            Segment(
                text,
                CORPUS,
                probability,
                char_start=copy.char_start,
                char_end=end,
                information=None if information is None else round(information, 1),
            )
        )
        self.copies.append(copy)

    @property
    def num_final(self) -> int:
        """Number of segments that nothing can change any more.

        All of them, but for a last one that waits for the rest of a character, or may go on.
        """
        if self._is_finished or not self.segments:
            return len(self.segments)
        is_open = bool(self._decoder.getstate()[0]) or self.copies[-1] is not None
        return len(self.segments) - is_open

    @property
    def num_open_characters(self) -> int:
        """Number of characters of a last copy that may go on; 0 without one."""
        is_open = not self._is_finished and self.copies and self.copies[-1] is not None
        return len(self.segments[-1].text) if is_open else 0

    def finish(self) -> None:
        """Write bytes that still wait for the rest of their character; the text is whole."""
        self._flush()
        self._is_finished = True

    def _flush(self) -> None:
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        if rest:
            last = self.segments[-1]
            self.segments[-1] = replace(last, text=last.text + rest)

    def document_ordinals(self, *, first: int = 0) -> set[int]:
        """The documents that were copied from."""
        return {copy.document_ordinal for copy in self.copies[first:] if copy is not None}
