"""What a run learns from: text goes in, the sources of its batches come out, checked.

Vectors of the retriever, by which chunks meet in batches, are encoded once, beside the examples.
"""

import hashlib
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cog.atomic import replacing
from cog.errors import TrainingError
from cog.model.config import ModelConfig
from cog.model.load import load_text_network, resolve_device
from cog.model.pieces import MeanRetriever
from cog.model.words import load_tokenizer
from cog.profiles import LoopProfile
from cog.progress import Progress, SilentProgress
from cog.training.batches import Batch, BatchSource, iter_batches
from cog.training.building import ExampleSettings, TrainingText, build_examples
from cog.training.examples import ExampleStore
from cog.training.initial_model import Bases, check_pieces
from cog.training.sampler import SamplerSettings, split_documents
from cog.training.segmentation.records import BatchRules

MIN_HELD_OUT = 2  # what is copied comes from another document
NUM_LOOKED_AT = 8  # batches in which there must be a phrase to copy
NUM_NAMED = 4
SAID_SECONDS = 10.0
TEXTS_PER_PASS = 128
SORTED_TEXTS = 128 * 64  # texts of one length together, so that little is padding


class _LineProgress(SilentProgress):
    # what comes before the first step says lines, and leaves the bar of the steps alone
    def __init__(self, progress: Progress, label: str) -> None:
        self._progress, self._label = progress, label
        self._num = 0
        self._said = time.monotonic()

    def advance(self, amount: int) -> None:
        self._num += amount
        if time.monotonic() - self._said > SAID_SECONDS:
            self._said = time.monotonic()
            self._progress.say(f"{self._label}: {self._num:,}")

    def say(self, message: str) -> None:
        self._progress.say(message)


@dataclass(frozen=True, slots=True)
class TrainingData:
    """What a run learns from."""

    store: ExampleStore
    train: BatchSource
    # source of the batches for validation; None if nothing is held out
    held_out: BatchSource | None
    num_documents: int

    def name_documents(self, batch: Batch) -> str:
        """Name the documents of a batch."""
        names = self.store.load_names()
        chosen = [names[number] for number in batch.documents.tolist()]
        rest = len(chosen) - NUM_NAMED
        return ", ".join(chosen[:NUM_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def prepare_data(
    text: TrainingText,
    bases: Bases,
    loop: LoopProfile,
    *,
    folder: Path,
    device: str,
    num_workers: int,
    seed: int,
    progress: Progress,
) -> TrainingData:
    """Tokenise text, set documents aside for validation and encode chunks for retrieval.

    With 0 workers this process tokenises.
    """
    config = bases.config
    store = build_examples(
        text,
        settings=ExampleSettings(bases.prefix, bases.phrase, config),
        folder=folder,
        num_workers=num_workers,
        progress=_LineProgress(progress, "documents tokenised"),
    )
    progress.say(
        f"{store.num_documents:,} documents, {store.num_chunks:,} chunks, "
        f"{store.num_tokens:,} tokens"
    )
    num_used = len(np.unique(store.documents))
    num_held_out = _count_held_out(num_used, loop, progress)
    chunks, held_out = split_documents(store.documents, num_held_out=num_held_out, seed=seed)
    vectors_path = None
    if loop.seeds_per_batch < loop.chunks_per_batch:
        vectors_path = encode_vectors(
            store,
            base=bases.retriever,
            max_pieces=config.max_pieces,
            device=device,
            progress=_LineProgress(progress, "chunks encoded for retrieval"),
        )
    train = _make_source(store, config, loop, chunks=chunks, vectors_path=vectors_path, seed=seed)
    # the choices that write the text, each once: what is measured is the text, not a sample of it
    choices = replace(loop, min_prefix_tokens=0, inner_share=1.0, common_weight=1.0)
    measured = replace(train.rules, loop=choices, inner_of_copies=False)
    return TrainingData(
        store=store,
        train=train,
        held_out=replace(train, chunks=held_out, rules=measured) if num_held_out else None,
        num_documents=num_used - num_held_out,
    )


def _count_held_out(num_used: int, loop: LoopProfile, progress: Progress) -> int:
    if num_used < 2:
        raise TrainingError(
            "training needs two documents or more: a phrase is copied from another one",
            found=f"{num_used} with words in it",
            run="name more files, or separate documents by blank lines",
        )
    num_held_out = int(num_used * loop.held_out_share)
    if loop.validation_batches == 0 or num_held_out < MIN_HELD_OUT:
        progress.say("no validation: too few documents, or the profile wants none")
        return 0
    if num_used - num_held_out < 2:
        raise TrainingError(
            "training needs two documents or more beside those held out for validation",
            found=f"{num_used - num_held_out} of {num_used}",
            run=f"lower held_out_share ({loop.held_out_share:g}) of the profile in params.yaml",
        )
    return num_held_out


def _make_source(
    store: ExampleStore,
    config: ModelConfig,
    loop: LoopProfile,
    *,
    chunks: NDArray[np.int64],
    vectors_path: Path | None,
    seed: int,
) -> BatchSource:
    return BatchSource(
        folder=store.folder,
        chunks=chunks,
        vectors_path=vectors_path,
        sampler=SamplerSettings(
            num_chunks=loop.chunks_per_batch,
            num_seeds=loop.seeds_per_batch,
            max_of_document=loop.max_of_document,
            seed=seed,
        ),
        rules=BatchRules(
            begin_token_id=config.begin_token_id,
            min_phrase_words=config.min_phrase_words,
            max_phrase_words=config.max_phrase_words,
            loop=loop,
            inner_of_copies=True,
        ),
    )


def encode_vectors(
    store: ExampleStore, *, base: Path, max_pieces: int, device: str, progress: Progress
) -> Path:
    """Encode every chunk with the retriever, unless that was done before.

    They are float32 and of unit length. *Shape:* ``(num_chunks, dim)``
    """
    path = store.folder / f"vectors-{_digest_base(base)}-{max_pieces}.npy"
    if path.is_file():
        return path
    network = load_text_network(base, {}, scale=1.0, device=resolve_device(device))
    check_pieces(network.max_positions, max_pieces=max_pieces, name="retriever")
    retriever = MeanRetriever(network, load_tokenizer(base), max_pieces=max_pieces)
    with replacing(path) as unfinished:
        vectors = np.lib.format.open_memmap(
            unfinished, mode="w+", dtype=np.float32, shape=(store.num_chunks, retriever.dim)
        )
        for first in range(0, store.num_chunks, SORTED_TEXTS):
            last = min(first + SORTED_TEXTS, store.num_chunks)
            texts = [store.get_text(chunk) for chunk in range(first, last)]
            order = np.argsort([len(text) for text in texts], kind="stable")
            for start in range(0, len(order), TEXTS_PER_PASS):
                rows = order[start : start + TEXTS_PER_PASS]
                encoded = retriever.encode_texts([texts[row] for row in rows])
                vectors[first + rows] = encoded
                progress.advance(len(rows))
        vectors.flush()
    return path


def _digest_base(base: Path) -> str:
    digest = hashlib.blake2b(digest_size=6)
    for path in sorted(base.glob("*")):
        if path.suffix in (".safetensors", ".json"):
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, hashlib.blake2b).digest())
    return digest.hexdigest()


def check_phrases(data: TrainingData) -> None:
    """Refuse text in which nothing is said twice."""
    batches = iter_batches(data.train, range(NUM_LOOKED_AT), num_workers=0)
    if any(batch.labels.is_phrase.any() for batch in batches):
        return
    raise TrainingError(
        "learning to copy needs phrases that occur in two documents",
        found=f"none in {NUM_LOOKED_AT} batches of {len(data.train.chunks)} chunks",
        run="name more text, or learn the next token only: --objective tokens",
    )
