"""From documents to training examples: tokenised in worker processes, written once, kept.

Examples are kept under a key of everything that decides them: the text, the tokenizers, the limits.
A build that is killed leaves nothing that could be taken for a whole one.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cog.atomic import replacing
from cog.errors import TrainingError
from cog.index.chunking import Chunk, chunk_document, hash_words
from cog.model.config import ModelConfig
from cog.model.phrase_encoder import locate_words
from cog.model.pieces import encode_pieces
from cog.model.words import BARRED, WordSplitter, load_tokenizer
from cog.progress import Progress
from cog.records import Document
from cog.training.examples import ABOUT_FILE, Example, ExampleStore, ExampleWriter
from cog.training.workers import iter_in_workers

VERSION = "v1"  # raise when the same text gives other examples
DOCUMENTS_PER_TASK = 64
KEY_DIGITS = 24


@dataclass(frozen=True, slots=True)
class ExampleSettings:
    """What decides how text becomes examples: tokenizers, and the limits of a model's config."""

    prefix_base: Path
    phrase_base: Path
    config: ModelConfig

    def digest(self) -> str:
        """Digest the settings by content, not by place."""
        digest = hashlib.blake2b(VERSION.encode(), digest_size=16)
        for base in (self.prefix_base, self.phrase_base):
            digest.update((base / "tokenizer.json").read_bytes())
        config = self.config
        limits = (config.max_chunk_tokens, config.min_chunk_tokens, config.max_pieces)
        digest.update(repr(limits).encode())
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class TrainingText:
    """The documents of a training run."""

    # gives the documents in order, from the first; asked only where they are needed
    read: Callable[[], Iterable[Document]]
    identity: str  # digest of what they are; the same text has the same one


def build_examples(
    text: TrainingText,
    *,
    settings: ExampleSettings,
    folder: Path,
    num_workers: int,
    progress: Progress,
) -> ExampleStore:
    """Make the examples of a text, or take those that were made before.

    Those of a text lie in a folder of their own. With 0 workers this process tokenises.
    """
    key = hashlib.blake2b(f"{text.identity} {settings.digest()}".encode()).hexdigest()[:KEY_DIGITS]
    store_folder = folder / key
    if (store_folder / ABOUT_FILE).is_file():
        return ExampleStore(store_folder)
    with replacing(store_folder) as unfinished:
        unfinished.mkdir()
        with ExampleWriter(unfinished) as writer:
            for name, examples in _iter_examples(text.read(), settings, num_workers=num_workers):
                writer.add_document(name, examples)
                progress.advance(1)
            if writer.num_chunks == 0:
                raise TrainingError(
                    "training needs text",
                    found="no document with a word in it",
                    run="name other files",
                )
            writer.finish()
    return ExampleStore(store_folder)


def _iter_examples(
    documents: Iterable[Document], settings: ExampleSettings, *, num_workers: int
) -> Iterator[tuple[str, list[Example]]]:
    source = iter(documents)
    tasks = iter(lambda: list(islice(source, DOCUMENTS_PER_TASK)), [])
    for made in iter_in_workers(ExampleMaker, settings, tasks, num_workers=num_workers):
        yield from made


class ExampleMaker:
    """Turns documents into examples, each beside the document's name in messages."""

    def __init__(self, settings: ExampleSettings) -> None:
        self._limits = settings.config
        self._splitter = WordSplitter.from_folder(settings.prefix_base)
        self._tokenizer = load_tokenizer(settings.phrase_base)

    def __call__(self, documents: list[Document]) -> list[tuple[str, list[Example]]]:
        """Cut documents into chunks and tokenise them."""
        return [(_name(each), self._make(each.text)) for each in documents]

    def _make(self, text: str) -> list[Example]:
        blocks = chunk_document(
            text, document_ordinal=0, splitter=self._splitter, limits=self._limits
        )
        # chunks of one word have nothing to learn from
        chunks = [chunk for block in blocks for chunk in block.chunks if chunk.num_words > 1]
        return self._encode(chunks) if chunks else []

    def _encode(self, chunks: list[Chunk]) -> list[Example]:
        texts = [chunk.text for chunk in chunks]
        batch = encode_pieces(self._tokenizer, texts, max_pieces=self._limits.max_pieces)
        examples = []
        for row, chunk in enumerate(chunks):
            first, last, has_piece = locate_words(batch, row, chunk.word_spans())
            text, bounds = chunk.text.encode("utf-8"), chunk.word_chars - chunk.word_chars[0]
            # a word without a piece has no vectors, so it is no source
            unseen = np.where(has_piece, 0, BARRED).astype(np.uint8)
            examples.append(
                Example(
                    document=0,  # the writer knows it
                    token_ids=chunk.token_ids,
                    word_tokens=chunk.word_tokens,
                    word_hashes=hash_words(chunk.text, bounds),
                    word_flags=chunk.word_flags | unseen,
                    text=text,
                    word_bytes=_char_to_byte(text, bounds),
                    piece_ids=batch.ids[row, : int(batch.mask[row].sum())].numpy().astype(np.int32),
                    start_pieces=first.astype(np.int16),
                    end_pieces=last.astype(np.int16),
                )
            )
        return examples


def _name(document: Document) -> str:
    if document.title:
        return f"{document.title} ({document.source})"
    return document.source or document.document_id


def _char_to_byte(text: bytes, chars: NDArray[np.int32]) -> NDArray[np.int32]:
    # character offsets, the end included, to byte offsets of UTF-8
    if text.isascii():
        return chars.astype(np.int32)
    raw = np.frombuffer(text, dtype=np.uint8)
    # a byte 10xxxxxx goes on with a character; the others begin one
    leads = np.append(np.flatnonzero((raw & 0xC0) != 0x80), len(raw))
    return leads[chars].astype(np.int32)
