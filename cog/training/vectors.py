"""Retriever vectors of training chunks: encoded once, kept beside the examples."""

import hashlib
import os
from pathlib import Path

import numpy as np

from cog.model.load import load_bidirectional, resolve_device
from cog.model.retriever import MeanRetriever
from cog.model.words import load_tokenizer
from cog.progress import Progress
from cog.training.examples import ExampleStore

TEXTS_PER_PASS = 128
SORTED_TEXTS = 128 * 64  # texts of one length together, so that little is padding


def encode_vectors(
    store: ExampleStore, *, base: Path, max_pieces: int, device: str, progress: Progress
) -> Path:
    """Encode every chunk with the retriever, unless that was done before.

    :param store: The examples.
    :param base: Folder of the retriever.
    :param max_pieces: Number of WordPieces read of a chunk, special ones aside.
    :param device: ``cpu``, ``cuda`` or ``auto``.
    :param progress: Told of chunks that are done.
    :returns: A file of float32 vectors of unit length. *Shape:* ``(num_chunks, dim)``
    """
    path = store.folder / f"vectors-{_digest_base(base)}-{max_pieces}.npy"
    if path.is_file():
        return path
    retriever = MeanRetriever(load_bidirectional(base), load_tokenizer(base), max_pieces=max_pieces)
    retriever.to(resolve_device(device))
    unfinished = path.with_name(f".{path.name}~{os.getpid()}.npy")
    vectors = np.lib.format.open_memmap(
        unfinished, mode="w+", dtype=np.float32, shape=(store.num_chunks, retriever.dim)
    )
    try:
        for first in range(0, store.num_chunks, SORTED_TEXTS):
            last = min(first + SORTED_TEXTS, store.num_chunks)
            texts = [store.get_text(chunk).decode("utf-8") for chunk in range(first, last)]
            order = np.argsort([len(text) for text in texts], kind="stable")
            for start in range(0, len(order), TEXTS_PER_PASS):
                rows = order[start : start + TEXTS_PER_PASS]
                encoded = retriever.encode_texts([texts[row] for row in rows])
                vectors[first + rows] = encoded
                progress.advance(len(rows))
        vectors.flush()
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path


def _digest_base(base: Path) -> str:
    digest = hashlib.blake2b(digest_size=6)
    for path in sorted(base.glob("*")):
        if path.suffix in (".safetensors", ".json"):
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, hashlib.blake2b).digest())
    return digest.hexdigest()
