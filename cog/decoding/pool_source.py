"""Sources of pools: a prefix and an index go in, what it may copy from comes out."""

import time
from collections.abc import Sequence
from threading import Lock
from weakref import WeakValueDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from cog.decoding.candidates import find_phrases
from cog.decoding.names import find_names
from cog.decoding.pool import Pool
from cog.decoding.request import Request
from cog.decoding.scoring import make_scorer
from cog.errors import GenerationError
from cog.index.read.reader import PhraseIndex
from cog.index.records import GatheredChunks
from cog.index.search.contexts import MAX_CONTEXT, find_places
from cog.index.search.filters import AllowedChunks
from cog.index.tables.gather import sort_chunks
from cog.model.load import CogModel
from cog.records import Decoding

MIN_PLACE_TOKENS = 4  # of the text's last ones that a place outside the pool must agree with
MAX_PLACES = 8  # such places that are looked at in a step
ENOUGH_PLACES = 3  # of a pool that agree as far: what they say tells what a collection says
MAX_FOUND_CHUNKS = 64  # chunks that a text may add to its pool by such places
# the settings that decide what a prefix may copy from
_DECIDING = ("top_k_documents", "min_bits", "guard_names", "relevance_level")


class PoolSource:
    """Retrieves and gathers what prefixes may copy from.

    Only ``allowed_chunks`` may be copied; None for all.
    """

    is_summed = True  # whether occurrences of one text are one choice

    def __init__(
        self, model: CogModel, index: PhraseIndex, *, allowed_chunks: AllowedChunks | None
    ) -> None:
        self.model = model
        self.index = index
        self._allowed_chunks = allowed_chunks
        token_bytes = model.splitter.token_bytes
        self._useful_bits = 0.0  # of min_bits, the highest with which some pool had a phrase
        self._pools: WeakValueDictionary[tuple[object, ...], Pool] = WeakValueDictionary()
        # texts of one prefix wait for the first of them, on whatever threads pools are made
        self._turns: WeakValueDictionary[tuple[object, ...], Lock] = WeakValueDictionary()
        self._guard = Lock()
        self._has_space = np.array([each.startswith(b" ") for each in token_bytes])

    def get_pool(self, request: Request) -> tuple[Pool, dict[str, float]]:
        """Make the pool of a text; texts of one prefix and the same rules share theirs.

        Second come the seconds of ``retrieve`` and ``gather``. If ``min_bits`` leaves no phrase in
        it, nor in any before, it is a ``GenerationError``.
        """
        decoding = request.decoding
        key = (request.prefix, *(getattr(decoding, name) for name in _DECIDING))
        began = retrieved = time.perf_counter()
        with self._guard:
            turn = self._turns.setdefault(key, Lock())
        with turn:
            pool = self._pools.get(key)
            if pool is None:
                chunk_ids, similarities = self.search(request)
                retrieved = time.perf_counter()
                words = self.index.gather_chunks(np.sort(chunk_ids))
                pool = self.make_pool(words, similarities, decoding)
                self._check_bits(pool, decoding.min_bits)
                self._pools[key] = pool
        gathered = time.perf_counter()
        return pool, {"retrieve": retrieved - began, "gather": gathered - retrieved}

    def search(self, request: Request) -> tuple[NDArray[np.int64], dict[int, float]]:
        """Find the chunks nearest to a prefix: ids, best first, and the similarity of each."""
        neighbours = self.index.search_chunks(
            self.model.retriever.encode_texts([request.prefix]),
            top_k=request.decoding.top_k_documents,
            allowed=self._allowed_chunks,
        )
        rows, scores = neighbours.rows[0], neighbours.scores[0]
        return rows, dict(zip(rows.tolist(), scores.tolist(), strict=True))

    def add_places(
        self, pool: Pool, token_ids: Sequence[int], decoding: Decoding, *, num_added: int
    ) -> tuple[Pool, int]:
        """Add the chunks of the index in which stands what a text ends with.

        Gives the pool with them, and how many were added in all; the same if there are none.
        """
        if num_added >= MAX_FOUND_CHUNKS:
            return pool, num_added
        tail = token_ids[-MAX_CONTEXT:]
        places = find_places(
            self.index.contexts,
            np.array(tail, dtype=np.int32),
            min_tokens=MIN_PLACE_TOKENS,
            max_places=MAX_PLACES,
            admits=None if self._allowed_chunks is None else self._allowed_chunks.admits,
        )
        agreed = pool.find_agreement(tail).num_tokens
        longest = int(agreed.max(initial=0))
        has_enough = int((agreed == longest).sum()) >= ENOUGH_PLACES
        if places.num_tokens < longest + has_enough:
            return pool, num_added  # the pool has places as good
        missing = np.setdiff1d(places.chunk_ids, pool.chunks.chunk_ids)
        if not len(missing):
            return pool, num_added
        known = dict(
            zip(
                pool.chunks.chunk_ids.tolist(),
                pool.similarities[pool.chunks.word_offsets[:-1]].tolist(),
                strict=True,
            )
        )
        # as far as the farthest that was retrieved; a document of which a part was retrieved is as
        # near as that
        least = min(known.values(), default=0.0)
        known |= dict.fromkeys(missing.tolist(), least)
        # in the order of the index, so that chunks that follow each other form a run
        grown = sort_chunks([pool.chunks, self.index.gather_chunks(missing)])
        return self.make_pool(grown, known, decoding), num_added + len(missing)

    def make_pool(
        self, chunks: GatheredChunks, similarities: dict[int, float], decoding: Decoding
    ) -> Pool:
        """Prepare gathered chunks, in the order of the index, for scoring.

        Similarities of chunks to the prefix are by id; 1 where none is told.
        """
        config, device = self.model.config, self.model.prefix_encoder.device
        word_bits = self.index.get_word_bits(chunks.word_hashes)
        phrases = find_phrases(
            chunks,
            min_words=config.min_phrase_words,
            max_words=config.max_phrase_words,
            word_bits=word_bits,
            min_bits=decoding.min_bits,
            is_summed=self.is_summed,
            device=device,
        )
        begin_words, end_words = phrases.begin_words.cpu().numpy(), phrases.end_words.cpu().numpy()
        first_tokens = chunks.token_ids[chunks.word_tokens[begin_words, 0]].astype(np.int64)
        run_starts, run_ends = _find_runs(chunks)
        begins, ends = chunks.word_tokens.T
        of_words = _spread(chunks, similarities)
        return Pool(
            chunks=chunks,
            phrases=phrases,
            scorer=make_scorer(chunks, device=device, begin_words=begin_words, end_words=end_words),
            similarities=of_words,
            nearest=float(of_words.max(initial=-1.0)) if len(of_words) else 1.0,
            word_bits=word_bits,
            run_starts=run_starts,
            run_ends=run_ends,
            token_words=np.repeat(np.arange(len(begins)), ends - begins),
            tokens_before=_find_tokens_before(chunks, run_starts),
            names=find_names(
                chunks,
                of_words < decoding.relevance_level,
                run_ends=run_ends,
                splitter=self.model.splitter,
            )
            if decoding.guard_names
            else None,
            first_tokens=torch.from_numpy(first_tokens).to(device),
            has_space=torch.from_numpy(self._has_space[first_tokens]).to(device),
        )

    def _check_bits(self, pool: Pool, min_bits: float) -> None:
        # refuse what leaves no phrase in any pool that was made with it
        if len(pool.phrases):
            self._useful_bits = max(self._useful_bits, min_bits)
        elif min_bits > self._useful_bits and (highest := self._find_most_bits(pool)):
            raise GenerationError(
                f"min_bits must leave a phrase: the most informative has {highest:.1f} bits",
                found=f"{min_bits:g}",
                run="lower generate.min_bits in params.yaml, or pass --set min_bits=30",
            )

    def _find_most_bits(self, pool: Pool) -> float:
        config = self.model.config
        phrases = find_phrases(
            pool.chunks, min_words=config.min_phrase_words, max_words=config.max_phrase_words
        )
        before = np.concatenate([[0.0], np.cumsum(pool.word_bits, dtype=np.float64)])
        firsts = phrases.begin_words[phrases.first].numpy()
        lasts = phrases.end_words[phrases.last].numpy()
        return float((before[lasts + 1] - before[firsts]).max(initial=0.0))


def _find_runs(chunks: GatheredChunks) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    # first word, and one past the last, of the run that each word lies in
    if not len(chunks.word_flags):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    begins, ends = chunks.word_offsets[:-1], chunks.word_offsets[1:] - 1
    is_new = np.ones(len(begins), dtype=bool)
    same_document = chunks.document_ordinals[1:] == chunks.document_ordinals[:-1]
    touches = chunks.word_chars[begins[1:], 0] == chunks.word_chars[ends[:-1], 1]
    is_new[1:] = ~(same_document & touches)
    starts = begins[is_new]
    stops = np.append(starts[1:], len(chunks.word_flags))
    counts = stops - starts
    return np.repeat(starts, counts), np.repeat(stops, counts)


def _find_tokens_before(chunks: GatheredChunks, run_starts: NDArray[np.int64]) -> NDArray[np.int32]:
    before = np.roll(chunks.token_ids, 1).astype(np.int32)
    before[chunks.word_tokens[np.unique(run_starts), 0]] = -1
    return before


def _spread(chunks: GatheredChunks, similarities: dict[int, float]) -> NDArray[np.float32]:
    # the similarity of a document, which is that of its nearest chunk, for each of its words
    of_chunks = np.array([similarities.get(i, 1.0) for i in chunks.chunk_ids.tolist()])
    documents, place = np.unique(chunks.document_ordinals, return_inverse=True)
    best = np.full(len(documents), -np.inf)
    np.maximum.at(best, place, of_chunks)
    return np.repeat(best[place], np.diff(chunks.word_offsets)).astype(np.float32)
