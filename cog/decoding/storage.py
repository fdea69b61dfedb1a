"""What storing vectors in few bits costs.

An index and held-out prefixes go in, the total variation between the exact and the stored
next-segment distribution comes out.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from cog.corpus.documents import load_prompts
from cog.decoding.candidates import find_phrases
from cog.decoding.distribution import next_choice
from cog.decoding.request import Request, encode_prefix
from cog.decoding.scoring import WordScorer, make_scorer
from cog.index.read.reader import PhraseIndex
from cog.index.records import GatheredChunks, StorageCost
from cog.model.load import CogModel, IndexModel, load_index_model, load_model
from cog.model.protocols import WordVectors
from cog.params import IndexParams
from cog.paths import CorpusPaths
from cog.records import Decoding

CHUNKS_PER_PREFIX = 4  # the chunks nearest to each prefix; all prefixes choose from all of them


def make_storage_measure(
    corpus_paths: CorpusPaths, *, model_folder: Path, params: IndexParams, device: str
) -> Callable[[PhraseIndex], StorageCost | None]:
    """Prepare the measurement that a build makes at its end, on the corpus's held-out prompts.

    What it makes of the finished index is None if there is no prompt or none is asked for.
    """
    prompts = load_prompts(corpus_paths.prompts)  # now, not after an hour of building
    step = max(1, len(prompts) // max(1, params.num_probe_prefixes))
    prefixes = [prompt.prefix for prompt in prompts[::step]][: params.num_probe_prefixes]

    def measure(index: PhraseIndex) -> StorageCost | None:
        if not prefixes:
            return None
        model = load_model(model_folder, device=device)
        return measure_storage(
            index, prefixes, model, load_index_model(model_folder, device=device)
        )

    return measure


def measure_storage(
    index: PhraseIndex, prefixes: list[str], model: CogModel, index_model: IndexModel
) -> StorageCost:
    """Compare next-segment distributions after held-out prefixes under exact and stored vectors."""
    vectors = model.retriever.encode_texts(prefixes)
    chunk_ids = np.unique(index.search_chunks(vectors, top_k=CHUNKS_PER_PREFIX).rows)
    chunks = index.gather_chunks(chunk_ids)
    config, encoder = model.config, model.prefix_encoder
    phrases = find_phrases(
        chunks,
        min_words=config.min_phrase_words,
        max_words=config.max_phrase_words,
        device=encoder.device,
    )
    words = {
        "begin_words": phrases.begin_words.cpu().numpy(),
        "end_words": phrases.end_words.cpu().numpy(),
    }
    stored = make_scorer(chunks, device=encoder.device, **words)
    exact = make_scorer(_encode_exactly(index, chunks, index_model), device=encoder.device, **words)

    shortest = Decoding(max_new_tokens=1)
    ids = [encode_prefix(Request(prefix, shortest), model) for prefix in prefixes]
    states = encoder.append_last(encoder.new_cache(batch=len(ids), capacity=64), ids)
    logits, queries = encoder.token_logits(states), encoder.phrase_queries(states)

    def probabilities(scorer: WordScorer, row: int) -> torch.Tensor:
        start, end = scorer.score_words(queries[0][row : row + 1], queries[1][row : row + 1])
        scores = phrases.score(start[0], end[0])
        distribution = next_choice(logits[row], scores, phrases)
        return distribution.weights.double() / distribution.total

    variations = [
        0.5 * float((probabilities(stored, row) - probabilities(exact, row)).abs().sum())
        for row in range(len(prefixes))
    ]
    return StorageCost(
        num_prefixes=len(prefixes),
        total_variation_mean=float(np.mean(variations)),
        total_variation_max=float(np.max(variations)),
    )


def _encode_exactly(
    index: PhraseIndex, chunks: GatheredChunks, index_model: IndexModel
) -> GatheredChunks:
    # the same chunks with their vectors as the encoder gives them, at scale 1
    documents = index.get_documents(set(chunks.document_ordinals.tolist()))
    encoded: list[WordVectors] = []
    for chunk, ordinal in enumerate(chunks.document_ordinals.tolist()):
        words = slice(chunks.word_offsets[chunk], chunks.word_offsets[chunk + 1])
        text, spans = _chunk_text(documents[ordinal].text, chunks.word_chars[words])
        encoded += index_model.phrase_encoder.encode_chunks([text], [spans])
    ones = np.ones(len(chunks.word_flags), dtype=np.float32)
    return GatheredChunks(
        chunk_ids=chunks.chunk_ids,
        document_ordinals=chunks.document_ordinals,
        word_offsets=chunks.word_offsets,
        start_vectors=np.concatenate([vectors.start for vectors in encoded]),
        end_vectors=np.concatenate([vectors.end for vectors in encoded]),
        start_scales=ones,
        end_scales=ones,
        word_flags=chunks.word_flags,
        word_hashes=chunks.word_hashes,
        word_chars=chunks.word_chars,
        word_tokens=chunks.word_tokens,
        token_ids=chunks.token_ids,
    )


def _chunk_text(text: str, word_chars: NDArray[np.int32]) -> tuple[str, NDArray[np.int32]]:
    # a chunk's text, and its words' characters in it without their leading spaces
    begin, end = int(word_chars[0, 0]), int(word_chars[-1, 1])
    spans = word_chars - begin
    has_space = np.array([text[first] == " " for first in word_chars[:, 0]])
    spans[:, 0] += has_space & (spans[:, 1] - spans[:, 0] > 1)
    return text[begin:end], spans
