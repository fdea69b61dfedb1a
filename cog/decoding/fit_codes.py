"""What the bits of compact vectors mean: a model and sample texts go in, its codes come out."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from cog.corpus.documents import DocumentStore
from cog.errors import IndexingError
from cog.index.chunking import Chunk, chunk_document
from cog.model.load import CogModel, IndexModel, load_index_model, load_model
from cog.model.vector_code import VectorCodes, fit_code
from cog.paths import CorpusPaths

NUM_TEXTS = 400  # a chunk each: some 28,000 words, and as many queries
CHUNKS_PER_PASS = 16
MAX_QUERY_TOKENS = 128


def make_code_fit(
    corpus_paths: CorpusPaths, *, model_folder: Path, device: str
) -> Callable[[], VectorCodes]:
    """Prepare the fit that a build makes if its model, and all its indexes, have no codes."""

    def fit() -> VectorCodes:
        store = DocumentStore(corpus_paths.documents)
        step = max(1, store.num_documents // NUM_TEXTS)
        texts = (document.text for document in islice(store.iter_documents(), 0, None, step))
        model = load_model(model_folder, device=device)
        return fit_codes(texts, model, load_index_model(model_folder, device=device))

    return fit


@torch.inference_mode()
def fit_codes(texts: Iterable[str], model: CogModel, index_model: IndexModel) -> VectorCodes:
    """Fit codes to the words of texts, and to the queries after each of their tokens.

    Of each text the first chunk is taken; a few hundred are enough, of what is to be indexed. The
    generating side of the model is in float32.
    """
    words: tuple[list[NDArray[np.float32]], ...] = ([], [])
    queries: tuple[list[NDArray[np.float32]], ...] = ([], [])
    chunks = _iter_first_chunks(texts, index_model)
    while batch := list(islice(chunks, CHUNKS_PER_PASS)):
        for each in index_model.phrase_encoder.encode_chunks(
            [chunk.text for chunk in batch], [chunk.word_spans() for chunk in batch]
        ):
            words[0].append(each.start)
            words[1].append(each.end)
        for side, asked in zip(queries, _encode_queries(batch, model), strict=True):
            side.append(asked)
    if not words[0]:
        raise IndexingError(
            "compact vectors need words of the corpus, to which their bits are fitted",
            found="none that fits into a chunk",
            run="set `vector_dtype: int8` in section index of params.yaml",
        )
    start, end = (
        fit_code(np.concatenate(vectors), np.concatenate(asked))
        for vectors, asked in zip(words, queries, strict=True)
    )
    return VectorCodes(start, end)


def _iter_first_chunks(texts: Iterable[str], model: IndexModel) -> Iterator[Chunk]:
    for text in texts:
        blocks = chunk_document(
            text, document_ordinal=0, splitter=model.splitter, limits=model.config
        )
        yield from islice((chunk for block in blocks for chunk in block.chunks), 1)


def _encode_queries(
    chunks: list[Chunk], model: CogModel
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    # start and end queries after every token of the chunks, (num_tokens, dim) each
    encoder = model.prefix_encoder
    begin = [] if encoder.begin_token_id is None else [encoder.begin_token_id]
    most = min(MAX_QUERY_TOKENS, encoder.max_positions)
    ids = [[*begin, *chunk.token_ids.tolist()][:most] for chunk in chunks]
    cache = encoder.new_cache(batch=len(ids), capacity=most)
    start, end = encoder.phrase_queries(encoder.append(cache, ids))
    return start.cpu().numpy(), end.cpu().numpy()
