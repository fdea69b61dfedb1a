"""Tokens of text: a text goes in, its tokens come out, word by word where that gives the same.

A byte-level vocabulary never joins a space with what stands before it, so a text can be cut there
and the tokens of its pieces, most of which were seen before, be looked up: four times as fast.
"""

import json
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

MAX_KNOWN = 1 << 17  # pieces that are remembered
MAX_KNOWN_CHARS = 32

_SPACE_AFTER_SPACE = re.compile(r"\s ")
_CUT = re.compile(r"(?<=\S)(?= )")


class TokenEncoder:
    """Tokenises texts without special tokens, and remembers pieces of them."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._known: dict[str, list[int]] = {}
        self.is_cutting = may_cut(tokenizer)

    def encode(self, text: str) -> NDArray[np.int32]:
        """Tokenise a text without lone surrogates. *Shape:* ``(num_tokens,)``."""
        if not self.is_cutting:
            ids = self._tokenizer.encode(text, add_special_tokens=False).ids
            return np.array(ids, dtype=np.int32)
        if len(self._known) > MAX_KNOWN:
            self._known = {}
        known = self._known
        pieces = cut_text(text)
        new = [piece for piece in dict.fromkeys(pieces) if piece not in known]
        found = self._tokenizer.encode_batch_fast(new, add_special_tokens=False)
        fresh = {piece: each.ids for piece, each in zip(new, found, strict=True)}
        known.update((p, ids) for p, ids in fresh.items() if len(p) <= MAX_KNOWN_CHARS)
        rows = [known[piece] if piece in known else fresh[piece] for piece in pieces]
        return np.array([token for row in rows for token in row], dtype=np.int32)


def cut_text(text: str) -> list[str]:
    """Cut a text before every space that follows something else than white space.

    Gives its pieces; joined they are the text.
    """
    if _SPACE_AFTER_SPACE.search(text):
        return _CUT.split(text)
    first, *rest = text.split(" ")
    pieces = [" " + piece for piece in rest]
    return [first, *pieces] if first else pieces


def may_cut(tokenizer: Tokenizer) -> bool:
    """Say whether a tokenizer surely gives a text the tokens of its pieces.

    It does if nothing but the byte-level rule (Radford et al. 2019), or that rule after one for
    digits, decides where tokens may not reach, and no token is looked for in the whole text. Its
    special tokens must be encoded as text. One that is not known surely does not.
    """
    added = tokenizer.get_added_tokens_decoder().values()
    if not tokenizer.encode_special_tokens or not all(token.special for token in added):
        return False
    normaliser, rule = _read_part(tokenizer.normalizer), _read_part(tokenizer.pre_tokenizer)
    if normaliser.get("type") not in (None, "NFC"):
        return False
    rules = rule["pretokenizers"] if rule.get("type") == "Sequence" else [rule]
    *first, last = rules or [{}]
    return (
        all(each.get("type") == "Digits" for each in first)
        and last.get("type") == "ByteLevel"
        and not last["add_prefix_space"]
        and bool(last["use_regex"])
    )


def _read_part(part: Any) -> dict[str, Any]:  # noqa: ANN401
    return {} if part is None else dict(json.loads(part.__getstate__()))
