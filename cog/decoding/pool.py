"""Pools: prefixes and an index go in, the words and phrases each may copy from come out."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cog.decoding.candidates import Phrases, find_phrases
from cog.decoding.request import Request
from cog.decoding.scoring import WordScorer, make_scorer
from cog.errors import GenerationError
from cog.index.records import GatheredChunks
from cog.index.union_index import AnyIndex, join_chunks
from cog.model.load import CogModel
from cog.model.words import BARRED, SPECIFIC, WordSplitter
from cog.records import Decoding

MIN_PLACE_TOKENS = 4  # of the text's last ones that a place outside the pool must agree with
MAX_PLACE_TOKENS = 16  # as many as are compared
MAX_PLACES = 8  # such places that are looked at in a step
MAX_FOUND_CHUNKS = 64  # chunks that a text may add to its pool by such places


@dataclass(frozen=True, slots=True)
class Agreement:
    """Places where what stands before a word is what a text ends with.

    :param words: The words. *Shape:* ``(num_places,)`` int64
    :param num_tokens: How many tokens before each agree. *Shape:* ``(num_places,)`` int64
    """

    words: NDArray[np.int64]
    num_tokens: NDArray[np.int64]

    def beyond(self, num_tokens: int) -> "Agreement":
        """The places where more than a few tokens agree.

        :param num_tokens: The few.
        :returns: Those places.
        """
        counts = self.num_tokens > num_tokens
        return Agreement(self.words[counts], self.num_tokens[counts])

    def at(self, word: int) -> int:
        """How many tokens before a word agree.

        :param word: The word.
        :returns: The count.
        """
        place = int(np.searchsorted(self.words, word))
        is_there = place < len(self.words) and self.words[place] == word
        return int(self.num_tokens[place]) if is_there else 0


@dataclass(frozen=True, slots=True)
class Names:
    """What documents that are not about the subject may not bring into a text.

    :param words_of: Words that are a name or a number, by how they are spelled.
    :param barred: Words that begin a sentence, and all of a document's first one, which says what
        the document is about.
    """

    words_of: dict[str, NDArray[np.int64]]
    barred: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Pool:
    """What a prefix may copy from: the words of its retrieved chunks and the phrases they form.

    Chunks that follow each other in a document lie side by side and form a run.

    :param chunks: The gathered words.
    :param phrases: Their admissible phrases.
    :param scorer: Scores the words that begin or end a phrase.
    :param similarities: Similarity of each word's document to the prefix: that of its best chunk.
        *Shape:* ``(num_words,)`` float32
    :param word_bits: Information of each word. *Shape:* ``(num_words,)`` float32
    :param run_starts: First word of each word's run. *Shape:* ``(num_words,)`` int64
    :param run_ends: One past the last word of its run. *Shape:* ``(num_words,)`` int64
    :param tokens_before: The token before each word, -1 where its run begins. *Shape:*
        ``(num_words,)`` int32
    :param names: What is guarded; None if nothing is.
    :param first_tokens: First token of each word that begins a phrase. *Shape:* ``(num_begins,)``
        int64
    :param has_space: Whether such a word brings its space. *Shape:* ``(num_begins,)`` bool
    """

    chunks: GatheredChunks
    phrases: Phrases
    scorer: WordScorer
    similarities: NDArray[np.float32]
    word_bits: NDArray[np.float32]
    run_starts: NDArray[np.int64]
    run_ends: NDArray[np.int64]
    tokens_before: NDArray[np.int32]
    names: Names | None
    first_tokens: Tensor
    has_space: Tensor

    @property
    def num_words(self) -> int:
        """Number of words."""
        return len(self.word_bits)

    def find_agreement(self, token_ids: Sequence[int]) -> Agreement:
        """Find the words before which stands what a text ends with.

        :param token_ids: The text's last tokens, as many as are compared.
        :returns: Words in ascending order, each with at least one token that agrees.
        """
        last = token_ids[-1] if token_ids else -2
        alive = np.flatnonzero(self.tokens_before == last)
        words, begins = alive, self.chunks.word_tokens[:, 0]
        num_tokens = np.ones(len(words), dtype=np.int64)
        places = np.arange(len(words))
        run_begins = begins[self.run_starts[words]]
        for depth in range(1, len(token_ids)):
            before = begins[words[places]] - 1 - depth
            inside = before >= run_begins[places]
            places, before = places[inside], before[inside]
            places = places[self.chunks.token_ids[before] == token_ids[-1 - depth]]
            if not len(places):
                break
            num_tokens[places] = depth + 1
        return Agreement(words, num_tokens)

    def get_place(self, word: int) -> tuple[int, int]:
        """Where a word stands.

        :param word: The word.
        :returns: Position of its document in the index, and its first character there.
        """
        chunk = int(np.searchsorted(self.chunks.word_offsets, word, side="right")) - 1
        return int(self.chunks.document_ordinals[chunk]), int(self.chunks.word_chars[word, 0])

    @property
    def num_bytes(self) -> int:
        """Memory of the words' vectors and of the phrases, as stored.

        :returns: Bytes.
        """
        vectors = self.chunks.start_vectors.nbytes + self.chunks.end_vectors.nbytes
        listed = self.phrases
        return vectors + listed.first.nbytes + listed.last.nbytes + listed.repeated_text.nbytes


class PoolSource:
    """Retrieves and gathers what prefixes may copy from.

    :param model: The model.
    :param index: The open index.
    :param allowed_chunks: Chunks that may be copied from; None for all. *Shape:*
        ``(num_chunks,)``
    """

    is_summed = True  # whether occurrences of one text are one choice

    def __init__(
        self, model: CogModel, index: AnyIndex, *, allowed_chunks: NDArray[np.bool_] | None
    ) -> None:
        self.model = model
        self.index = index
        self._allowed_chunks = allowed_chunks
        token_bytes = model.splitter.token_bytes
        self._has_space = np.array([each.startswith(b" ") for each in token_bytes])

    def make_pools(self, requests: Sequence[Request]) -> tuple[list[Pool], dict[str, float]]:
        """Make the pool of every request; requests that differ in their seed alone share theirs.

        :param requests: The requests.
        :returns: Pools in the order of the requests, and the seconds of ``retrieve`` and
            ``gather``.
        :raises GenerationError: If no phrase is informative enough.
        """
        keys = [replace(each, decoding=replace(each.decoding, seed=0)) for each in requests]
        distinct = list(dict.fromkeys(keys))
        began = time.perf_counter()
        found = self.search(distinct)
        retrieved = time.perf_counter()
        pools = {
            key: self.make_pool(self.gather_words(key.prefix, ids), similarities, key.decoding)
            for key, (ids, similarities) in zip(distinct, found, strict=True)
        }
        gathered = time.perf_counter()
        seconds = {"retrieve": retrieved - began, "gather": gathered - retrieved}
        return [pools[key] for key in keys], seconds

    def search(
        self, requests: Sequence[Request]
    ) -> list[tuple[NDArray[np.int64], dict[int, float]]]:
        """Find the chunks nearest to prefixes.

        :param requests: The requests.
        :returns: Per prefix, chunk ids, best first, and the similarity of each.
        """
        vectors = self.model.retriever.encode_texts([request.prefix for request in requests])
        found = []
        for vector, request in zip(vectors, requests, strict=True):
            neighbours = self.index.search_neighbours(
                vector[None],
                top_k=request.decoding.top_k_documents,
                allowed=self._allowed_chunks,
            )
            pairs = zip(neighbours.rows[0].tolist(), neighbours.scores[0].tolist(), strict=True)
            found.append((neighbours.rows[0], dict(pairs)))
        return found

    def gather_words(self, _prefix: str, chunk_ids: NDArray[np.int64]) -> GatheredChunks:
        """Gather the words that may be copied.

        :param _prefix: The prefix, which adds nothing to them here.
        :param chunk_ids: The chunks found for it. *Shape:* ``(num_chunks,)``
        :returns: The gathered words.
        """
        return self.index.gather_chunks(np.sort(chunk_ids))

    def add_places(
        self, pool: Pool, token_ids: Sequence[int], decoding: Decoding, *, num_added: int
    ) -> tuple[Pool, int]:
        """Add the chunks of the index in which stands what a text ends with.

        :param pool: The pool.
        :param token_ids: The text's tokens.
        :param decoding: The settings.
        :param num_added: Number of chunks that were added before.
        :returns: The pool with them, and how many were added in all; the same if there are none.
        """
        if num_added >= MAX_FOUND_CHUNKS:
            return pool, num_added
        tail = token_ids[-MAX_PLACE_TOKENS:]
        places = self.index.find_places(
            np.array(tail, dtype=np.int32),
            min_tokens=MIN_PLACE_TOKENS,
            max_places=MAX_PLACES,
            allowed=self._allowed_chunks,
        )
        if places.num_tokens <= pool.find_agreement(tail).num_tokens.max(initial=0):
            return pool, num_added  # the pool has as good a place
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
        grown = _sort_chunks(join_chunks([pool.chunks, self.index.gather_chunks(missing)]))
        return self.make_pool(grown, known, decoding), num_added + len(missing)

    def make_pool(
        self, chunks: GatheredChunks, similarities: dict[int, float], decoding: Decoding
    ) -> Pool:
        """Prepare gathered chunks for scoring.

        :param chunks: The gathered words, in the order of the index.
        :param similarities: Similarity of chunks to the prefix, by id; 1 where none is told.
        :param decoding: Says what is a phrase, and what is guarded.
        :returns: The pool.
        :raises GenerationError: If no phrase is informative enough.
        """
        config, device = self.model.config, self.model.prefix_encoder.device
        word_bits = self.index.get_word_bits(chunks.word_hashes)
        phrases = find_phrases(
            chunks,
            min_words=config.min_phrase_words,
            max_words=config.max_phrase_words,
            word_bits=word_bits if decoding.min_bits else None,
            min_bits=decoding.min_bits,
            is_summed=self.is_summed,
            device=device,
        )
        if decoding.min_bits and len(word_bits) and not len(phrases):
            self._check_bits(chunks, word_bits, decoding)
        begin_words, end_words = phrases.begin_words.cpu().numpy(), phrases.end_words.cpu().numpy()
        first_tokens = chunks.token_ids[chunks.word_tokens[begin_words, 0]].astype(np.int64)
        run_starts, run_ends = _find_runs(chunks)
        of_words = _spread(chunks, similarities)
        return Pool(
            chunks=chunks,
            phrases=phrases,
            scorer=make_scorer(chunks, device=device, begin_words=begin_words, end_words=end_words),
            similarities=of_words,
            word_bits=word_bits,
            run_starts=run_starts,
            run_ends=run_ends,
            tokens_before=_find_tokens_before(chunks, run_starts),
            names=_find_names(chunks, of_words, run_ends, self.model.splitter, decoding),
            first_tokens=torch.from_numpy(first_tokens).to(device),
            has_space=torch.from_numpy(self._has_space[first_tokens]).to(device),
        )

    def _check_bits(
        self, chunks: GatheredChunks, word_bits: NDArray[np.float32], decoding: Decoding
    ) -> None:
        # nothing is left: because min_bits is too high, or because there is no phrase at all
        config = self.model.config
        phrases = find_phrases(
            chunks, min_words=config.min_phrase_words, max_words=config.max_phrase_words
        )
        if len(phrases):
            before = np.concatenate([[0.0], np.cumsum(word_bits.astype(np.float64))])
            firsts = phrases.begin_words[phrases.first].numpy()
            lasts = phrases.end_words[phrases.last].numpy()
            raise GenerationError(
                "min_bits must leave a phrase of those retrieved: the most informative has "
                f"{(before[lasts + 1] - before[firsts]).max():.1f} bits",
                found=f"{decoding.min_bits:g}",
                run="lower generate.min_bits in params.yaml, or pass --set min_bits=30",
            )


def _sort_chunks(chunks: GatheredChunks) -> GatheredChunks:
    # chunks in the order of the index, so that those that follow each other form a run
    order = np.argsort(chunks.chunk_ids, kind="stable")
    counts = np.diff(chunks.word_offsets)
    offsets = np.concatenate([[0], np.cumsum(counts[order])])
    shift = np.repeat(chunks.word_offsets[order] - offsets[:-1], counts[order])
    words = np.arange(offsets[-1]) + shift
    by_chunk = ("chunk_ids", "document_ordinals")
    values = {}
    for field in fields(GatheredChunks):
        value = getattr(chunks, field.name)
        if field.name not in ("word_offsets", "token_ids"):
            values[field.name] = value[order if field.name in by_chunk else words]
    # tokens move with their words, since a run's tokens must follow each other
    token_counts = values["word_tokens"][:, 1] - values["word_tokens"][:, 0]
    token_ends = np.cumsum(token_counts)
    starts = token_ends - token_counts
    tokens = np.arange(token_ends[-1]) + np.repeat(
        values["word_tokens"][:, 0] - starts, token_counts
    )
    values["word_tokens"] = np.stack([starts, token_ends], axis=1)
    return GatheredChunks(
        **values, word_offsets=offsets.astype(np.int64), token_ids=chunks.token_ids[tokens]
    )


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
    begins = chunks.word_tokens[:, 0]
    before = chunks.token_ids[np.maximum(begins - 1, 0)] if len(begins) else chunks.token_ids
    return np.where(np.arange(len(begins)) == run_starts, -1, before).astype(np.int32)


def _spread(chunks: GatheredChunks, similarities: dict[int, float]) -> NDArray[np.float32]:
    # the similarity of a document, which is that of its nearest chunk, for each of its words
    of_chunks = np.array([similarities.get(i, 1.0) for i in chunks.chunk_ids.tolist()])
    documents, place = np.unique(chunks.document_ordinals, return_inverse=True)
    best = np.full(len(documents), -np.inf)
    np.maximum.at(best, place, of_chunks)
    return np.repeat(best[place], np.diff(chunks.word_offsets)).astype(np.float32)


def _find_names(
    chunks: GatheredChunks,
    similarities: NDArray[np.float32],
    run_ends: NDArray[np.int64],
    splitter: WordSplitter,
    decoding: Decoding,
) -> Names | None:
    if not decoding.guard_names:
        return None
    is_far = similarities < decoding.relevance_level
    is_name = (chunks.word_flags & SPECIFIC) != 0
    is_end = (chunks.word_flags & BARRED) != 0
    is_barred = np.ones(len(is_far), dtype=bool)
    is_barred[1:] = is_end[:-1]
    for begin in np.flatnonzero(chunks.word_chars[:, 0] == 0).tolist():  # of a document
        run = slice(begin, int(run_ends[begin]))
        is_barred[run] |= np.cumsum(is_end[run]) - is_end[run] == 0  # up to the first end
    hashes = chunks.word_hashes
    of_near = np.unique(hashes[is_name & ~is_far])
    guarded = np.flatnonzero(is_name & is_far & ~is_barred & ~np.isin(hashes, of_near))
    words_of: dict[str, NDArray[np.int64]] = {}
    for group in _split_by(guarded, hashes[guarded]):
        begin, end = chunks.word_tokens[group[0]]
        spelled = splitter.decode(chunks.token_ids[begin:end]).decode(errors="replace").strip()
        known = words_of.get(spelled)
        words_of[spelled] = group if known is None else np.concatenate([known, group])
    return Names(words_of, np.flatnonzero(is_far & is_barred))


def _split_by(values: NDArray[np.int64], keys: NDArray[np.uint64]) -> Iterable[NDArray[np.int64]]:
    order = np.argsort(keys, kind="stable")
    changes = np.flatnonzero(np.diff(keys[order])) + 1
    return np.split(values[order], changes) if len(values) else ()
