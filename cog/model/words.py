"""Words, the copy unit: a text goes in, its tokens and the words they form come out (no torch)."""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from cog.errors import CheckpointError
from cog.model.tokens import TokenEncoder

# bits of a word's flags
BARRED = np.uint8(1)  # may not lie in a phrase
CAN_START = np.uint8(2)  # a phrase may begin with it
CAN_END = np.uint8(4)  # a phrase may end with it
SPECIFIC = np.uint8(8)  # begins with a capital or holds a digit: a name, a number

SENTENCE_MARKS = frozenset(".!?;:")
UNKNOWN = re.compile(r"<unk>")
SPACE = "Ġ"  # how byte-level vocabularies write a space
NEWLINE = "Ċ"  # and a line feed
NO_BYTE = "\uffff"


@dataclass(frozen=True, slots=True)
class Words:
    """A text as prefix-encoder tokens and as words; words tile the text."""

    token_ids: NDArray[np.int32]  # (num_tokens,) of the prefix encoder, no special ones
    # (num_words + 1,) word i is tokens [word_tokens[i], word_tokens[i + 1])
    word_tokens: NDArray[np.int32]
    word_chars: NDArray[np.int32]  # (num_words + 1,) likewise in characters

    @property
    def num_words(self) -> int:
        """Number of words."""
        return len(self.word_tokens) - 1


class WordSplitter:
    """Splits texts into words by the prefix encoder's byte-level vocabulary.

    A token starts a word if its string begins with a space or a line feed, or with an ASCII
    character that is no letter or digit, or if the token before it ended in such a character (a
    token that is one space does not count), or if it is the first. So a word carries its leading
    space and never has to be tokenised again. A vocabulary that is not byte-level is a
    ``CheckpointError``.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True  # "<|im_start|>" in a document is text
        self._encoder = TokenEncoder(tokenizer)
        special = {i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special}
        vocab = tokenizer.get_vocab(with_added_tokens=True)
        if SPACE + "the" not in vocab and SPACE not in vocab:
            raise CheckpointError(
                "the prefix encoder needs a byte-level vocabulary (as GPT-2 and Llama 3 have)",
                found="no token that begins with a space in byte-level spelling",
                run="name another prefix encoder in the model's config.yaml",
            )
        strings = [""] * (max(vocab.values()) + 1)
        for token, i in vocab.items():
            strings[i] = token
        table = _byte_alphabet()
        self.token_bytes: tuple[bytes, ...] = tuple(
            s.encode() if i in special else _spell(s, table) for i, s in enumerate(strings)
        )
        self.special_token_ids = np.array(sorted(special), dtype=np.int64)
        self._empty_token_ids = [i for i, string in enumerate(strings) if not string]
        self._num_bytes = np.array([len(b) for b in self.token_bytes], dtype=np.int64)
        ends_word = {SPACE, NEWLINE, *(c for c in map(chr, range(128)) if not c.isalnum())}
        self._opens = np.array([s[:1] in ends_word for s in strings])
        self._closes = np.array([s != SPACE and s[-1:] in ends_word for s in strings])

    @classmethod
    def from_folder(cls, folder: Path) -> "WordSplitter":
        """Read ``tokenizer.json`` of a folder as ``save_pretrained`` writes it."""
        return cls(load_tokenizer(folder))

    def list_unwritable(self, vocab_size: int) -> NDArray[np.int64]:
        """List the tokens of a network that are no text: special ones, and those without a string.

        Networks often have rows for more tokens than their tokenizer. *Shape:* ``(num_tokens,)``
        """
        beyond = range(len(self.token_bytes), vocab_size)
        listed = np.array(
            [*self.special_token_ids, *self._empty_token_ids, *beyond], dtype=np.int64
        )
        return np.unique(listed[listed < vocab_size])

    def encode(self, text: str) -> NDArray[np.int32]:
        """Tokenise a text without lone surrogates. *Shape:* ``(num_tokens,)``."""
        return self._encoder.encode(text)

    def decode(self, token_ids: NDArray[np.int32]) -> bytes:
        """The exact bytes of some tokens; they need not be whole characters."""
        return b"".join([self.token_bytes[i] for i in token_ids.tolist()])

    def split(self, text: str) -> Words:
        """Split a text without lone surrogates into words.

        If the tokens do not spell it byte for byte, it is a ``CheckpointError``.
        """
        token_ids = self.encode(text)
        token_bytes = self._token_offsets(text, token_ids)
        opens = self._opens[token_ids].copy()
        opens[1:] |= self._closes[token_ids[:-1]]
        opens[:1] = True
        word_tokens = np.append(np.flatnonzero(opens), len(token_ids)).astype(np.int32)
        return Words(token_ids, word_tokens, _chars_before(text, token_bytes[word_tokens]))

    def token_chars(self, text: str) -> list[tuple[int, int]]:
        """Half-open character ranges of a text's tokens; those in one character share it."""
        offsets = self._token_offsets(text, self.encode(text))
        starts = _chars_before(text, offsets, whole=True)
        ends = _chars_before(text, offsets)
        return list(zip(starts[:-1].tolist(), ends[1:].tolist(), strict=True))

    def _token_offsets(self, text: str, token_ids: NDArray[np.int32]) -> NDArray[np.int64]:
        offsets = np.concatenate([[0], np.cumsum(self._num_bytes[token_ids])])
        size = len(text.encode())
        if offsets[-1] != size:
            raise CheckpointError(
                "the prefix encoder's tokens must spell a text byte for byte",
                found=f"{int(offsets[-1])} bytes in tokens, {size} in the text",
                run="name another prefix encoder in the model's config.yaml",
            )
        return offsets


def load_tokenizer(folder: Path) -> Tokenizer:
    """Read a folder's tokenizer, without padding and truncation."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise CheckpointError(
            f"{folder.name} must hold tokenizer.json",
            found="no such file",
            run="save a fast tokenizer there",
        )
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def flag_words(text: str, word_chars: NDArray[np.int32]) -> NDArray[np.uint8]:
    """Say what each word may do in a phrase, and whether it is a name or a number.

    No word of a phrase is ``.``, ``!``, ``?``, ``;``, ``:``, holds a line feed or lies in
    ``<unk>``; its first character (after the space) and its last one are letters or digits. Gives
    bits ``BARRED``, ``CAN_START``, ``CAN_END``, ``SPECIFIC``. *Shape:* ``(num_words,)``
    """
    bounds = word_chars.tolist()
    flags = np.array(
        [_flag(text[a:b]) for a, b in zip(bounds, bounds[1:], strict=False)], dtype=np.uint8
    )
    for match in UNKNOWN.finditer(text):
        first = np.searchsorted(word_chars, match.start(), side="right") - 1
        last = np.searchsorted(word_chars, match.end(), side="left")
        flags[first:last] |= BARRED
    return flags


def _flag(word: str) -> int:
    core = word.removeprefix(" ")
    flag = 0
    if core in SENTENCE_MARKS or "\n" in word:
        flag |= int(BARRED)
    if core[:1].isalnum():
        flag |= int(CAN_START)
    if core[-1:].isalnum():
        flag |= int(CAN_END)
    if core[:1].isupper() or any(map(str.isdigit, core)):
        flag |= int(SPECIFIC)
    return flag


def _byte_alphabet() -> dict[int, str]:
    # The printable stand-ins that byte-level vocabularies use for the 256 bytes (Radford et al.
    # 2019), by code point, as characters of these numbers; what else is below 256 is no stand-in.
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [b for b in range(256) if b not in kept]
    stands_in = {b: chr(b) for b in kept} | {0x100 + i: chr(b) for i, b in enumerate(moved)}
    return dict.fromkeys(moved, NO_BYTE) | stands_in


def _spell(token: str, table: dict[int, str]) -> bytes:
    # fifty thousand times at every start, so without a loop over characters
    try:
        return token.translate(table).encode("latin-1")
    except UnicodeEncodeError:  # no byte-level spelling
        return token.encode()


def _chars_before(
    text: str, offsets: NDArray[np.int64], *, whole: bool = False
) -> NDArray[np.int32]:
    # number of characters that begin before each byte offset; with `whole`, of those that end
    # before it
    if text.isascii():
        return offsets.astype(np.int32)
    raw = np.frombuffer(text.encode(), dtype=np.uint8)
    is_lead = (raw & 0xC0) != 0x80
    before = np.concatenate([[0], np.cumsum(is_lead)])[offsets]
    if whole:
        inside = np.append(~is_lead, False)[offsets]
        before = before - inside
    return before.astype(np.int32)
