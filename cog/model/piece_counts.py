"""How a model cuts texts, without torch: a text goes in, tokens and counts of pieces come out."""

import json
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from cog.corpus.suitability import PieceCounts
from cog.model.base import get_base_folder
from cog.model.config import load_config
from cog.model.words import WordSplitter, load_tokenizer


@dataclass(frozen=True, slots=True)
class TextCutter:
    """The tokenizers of a model: the prefix encoder's, and that of the phrase encoder's pieces."""

    splitter: WordSplitter
    tokenizer: Tokenizer
    unknown_id: int | None  # its piece for what it does not know; None if it knows every byte

    def count(self, text: str) -> PieceCounts:
        """Count tokens and pieces."""
        pieces = self.tokenizer.encode(text, add_special_tokens=False).ids
        num_unknown = pieces.count(self.unknown_id) if self.unknown_id is not None else 0
        return PieceCounts(len(self.splitter.encode(text)), len(pieces), num_unknown)


def load_cutter(folder: Path) -> TextCutter:
    """Load the tokenizers of a model."""
    config = load_config(folder)
    splitter = WordSplitter.from_folder(get_base_folder(config.prefix_base, model_folder=folder))
    tokenizer = load_tokenizer(get_base_folder(config.phrase_base, model_folder=folder))
    unknown = json.loads(tokenizer.to_str())["model"].get("unk_token")
    unknown_id = tokenizer.token_to_id(unknown) if unknown else None
    return TextCutter(splitter, tokenizer, unknown_id)
