"""Retriever vectors of training chunks: encoded once, kept beside the examples."""

import hashlib
from pathlib import Path

import numpy as np

from cog.atomic import replacing
from cog.errors import TrainingError
from cog.model.load import load_text_network, resolve_device
from cog.model.retriever import MeanRetriever
from cog.model.words import load_tokenizer
from cog.progress import Progress
from cog.training.examples import ExampleStore

TEXTS_PER_PASS = 128
NUM_SPECIAL_PIECES = 2  # at the beginning and the end
SORTED_TEXTS = 128 * 64  # texts of one length together, so that little is padding


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


def check_pieces(num_positions: int | None, *, max_pieces: int, name: str) -> None:
    """Refuse an encoder that cannot read as many WordPieces as it is given; None for no limit."""
    if num_positions is not None and max_pieces + NUM_SPECIAL_PIECES > num_positions:
        raise TrainingError(
            f"max_pieces ({max_pieces}) and {NUM_SPECIAL_PIECES} special ones must fit into the "
            f"{name}",
            found=f"{num_positions} positions",
            run="lower max_pieces of the profile in params.yaml",
            about="max_pieces",
        )


def _digest_base(base: Path) -> str:
    digest = hashlib.blake2b(digest_size=6)
    for path in sorted(base.glob("*")):
        if path.suffix in (".safetensors", ".json"):
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, hashlib.blake2b).digest())
    return digest.hexdigest()
