"""The copy-generator: prefixes, a model and an index go in, cited texts come out."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cog.decoding.candidates import find_phrases
from cog.decoding.citations import cite_segment
from cog.decoding.distribution import NextChoice, PhraseTable, next_choice
from cog.decoding.sampling import Chooser
from cog.decoding.scoring import WordScorer, make_scorer
from cog.decoding.text import Copy, GrowingText
from cog.errors import GenerationError
from cog.index.reader import PhraseIndex
from cog.index.records import GatheredChunks
from cog.model.load import CogModel
from cog.records import Decoding, Generation, Segment

OnSegment = Callable[[int, Segment], None]


@dataclass(frozen=True, slots=True)
class Request:
    """One text to write.

    :param prefix: The text to continue; may be empty.
    :param decoding: How.
    """

    prefix: str
    decoding: Decoding


@dataclass(frozen=True, slots=True)
class Pool:
    """What a prefix may copy from: the words of its retrieved chunks and the phrases they form.

    :param chunks: The gathered words.
    :param phrases: Their admissible phrases.
    :param scorer: Scores the words.
    """

    chunks: GatheredChunks
    phrases: PhraseTable
    scorer: WordScorer

    @property
    def num_bytes(self) -> int:
        """Memory of the words' vectors and of the phrases, as stored.

        :returns: Bytes.
        """
        vectors = self.chunks.start_vectors.nbytes + self.chunks.end_vectors.nbytes
        listed = self.phrases.phrases
        return vectors + listed.first.nbytes + listed.last.nbytes + listed.repeated_text.nbytes


@dataclass(slots=True)
class Row:
    """A text while it is being written.

    :param request: What was asked.
    :param pool: What it may copy from.
    :param chooser: Takes its choices.
    :param text: What is written.
    :param num_tokens: Number of tokens appended.
    :param num_steps: Number of steps taken.
    :param new_ids: Tokens of the last step, which the cache has not seen.
    """

    request: Request
    pool: Pool
    chooser: Chooser
    text: GrowingText
    num_tokens: int
    num_steps: int
    new_ids: list[int]

    @property
    def num_left(self) -> int:
        """Number of tokens still to append.

        :returns: The count.
        """
        return self.request.decoding.max_new_tokens - self.num_tokens


class CopyGenerator:
    """Writes texts by copying phrases out of an index (CoG, section 3).

    Retrieval is done once per prefix. Every step scores the whole vocabulary and every admissible
    phrase of the retrieved chunks, takes one choice and appends it in one forward pass; all texts
    of a batch share that pass.

    :param model: The model.
    :param index: The open index.
    :param allowed_chunks: Chunks that may be copied from; None for all. *Shape:* ``(num_chunks,)``
    """

    def __init__(
        self,
        model: CogModel,
        index: PhraseIndex,
        *,
        allowed_chunks: NDArray[np.bool_] | None = None,
    ) -> None:
        self.model = model
        self._index = index
        self._allowed_chunks = allowed_chunks
        self._special = torch.from_numpy(model.splitter.special_token_ids).to(
            model.prefix_encoder.device
        )

    def generate(
        self, requests: Sequence[Request], *, on_segment: OnSegment | None = None
    ) -> list[Generation]:
        """Write a batch of texts together.

        :param requests: The texts to write; each comes out the same in any batch, up to rounding in
            the prefix
            encoder.
        :param on_segment: Called with the number of a text and each of its segments as it is
            written.
        :returns: The texts, in the order asked.
        :raises GenerationError: If a prefix or a setting cannot be used.
        """
        if not requests:
            return []
        for request in requests:
            self._check(request)
        pools, seconds = self._make_pools(requests)
        rows = [
            Row(request, pool, Chooser(request.decoding, request.prefix), GrowingText(), 0, 0, [])
            for request, pool in zip(requests, pools, strict=True)
        ]
        began = time.perf_counter()
        self._decode(rows, on_segment=on_segment)
        seconds["decode"] = time.perf_counter() - began
        shared = {part: value / len(rows) for part, value in seconds.items()}
        return [self._finish(row, shared) for row in rows]

    def prefix_ids(self, request: Request) -> list[int]:
        """The tokens the prefix encoder reads: a prefix's last ones, if it is too long.

        :param request: The text to write.
        :returns: Token ids, the begin token first.
        """
        encoder = self.model.prefix_encoder
        begin = [] if encoder.begin_token_id is None else [encoder.begin_token_id]
        room = encoder.max_positions - request.decoding.max_new_tokens - len(begin)
        ids: list[int] = self.model.splitter.encode(request.prefix).tolist()
        return begin + ids[max(0, len(ids) - room) :]

    def num_unread_tokens(self, request: Request) -> int:
        """Number of a prefix's first tokens that are beyond the model's context.

        :param request: The text to write.
        :returns: The count; 0 for nearly every prefix.
        """
        has_begin = self.model.prefix_encoder.begin_token_id is not None
        num_ids = len(self.model.splitter.encode(request.prefix)) + has_begin
        return num_ids - len(self.prefix_ids(request))

    def _check(self, request: Request) -> None:
        decoding = request.decoding
        if any("\ud800" <= character <= "\udfff" for character in request.prefix):
            raise GenerationError(
                "a prefix must be Unicode text",
                found="a lone surrogate",
                run="give the prefix as UTF-8",
            )
        if not request.prefix and self.model.prefix_encoder.begin_token_id is None:
            raise GenerationError(
                "this model needs a prefix of one token or more",
                found="an empty prefix",
                run="pass --prefix TEXT",
            )
        limit = self.model.prefix_encoder.max_positions // 2
        if not 1 <= decoding.max_new_tokens <= limit:
            raise GenerationError(
                f"max_new_tokens must lie between 1 and {limit}", found=str(decoding.max_new_tokens)
            )
        if not 0.0 < decoding.top_p <= 1.0:
            raise GenerationError("top_p must lie above 0 and up to 1", found=str(decoding.top_p))
        if decoding.method not in ("greedy", "nucleus"):
            raise GenerationError("decoding must be greedy or nucleus", found=decoding.method)
        if decoding.top_k_documents < 0:
            raise GenerationError(
                "top_k_documents must be 0 or more", found=str(decoding.top_k_documents)
            )
        if not np.isfinite(decoding.phrase_bias):
            raise GenerationError(
                "phrase_bias must be a finite number", found=str(decoding.phrase_bias)
            )

    def _make_pools(self, requests: Sequence[Request]) -> tuple[list[Pool], dict[str, float]]:
        # texts with the same prefix and number of chunks share their pool
        keys = [(request.prefix, request.decoding.top_k_documents) for request in requests]
        distinct = list(dict.fromkeys(keys))
        began = time.perf_counter()
        vectors = self.model.retriever.encode_texts([prefix for prefix, _ in distinct])
        found = [
            self._index.search_chunks(
                vectors[i : i + 1], top_k=top_k, allowed=self._allowed_chunks
            )[0]
            for i, (_, top_k) in enumerate(distinct)
        ]
        retrieved = time.perf_counter()
        pools = {
            key: self.make_pool(self._index.gather_chunks(ids))
            for key, ids in zip(distinct, found, strict=True)
        }
        gathered = time.perf_counter()
        return [pools[key] for key in keys], {
            "retrieve": retrieved - began,
            "gather": gathered - retrieved,
        }

    def retrieve(self, request: Request) -> GatheredChunks:
        """Gather the words of the chunks nearest to a prefix.

        :param request: The text to write.
        :returns: The gathered words.
        """
        vectors = self.model.retriever.encode_texts([request.prefix])
        top_k = request.decoding.top_k_documents
        found = self._index.search_chunks(vectors, top_k=top_k, allowed=self._allowed_chunks)[0]
        return self._index.gather_chunks(found)

    def make_pool(self, chunks: GatheredChunks) -> Pool:
        """Prepare gathered chunks for scoring.

        :param chunks: The gathered words.
        :returns: The pool.
        """
        config, device = self.model.config, self.model.prefix_encoder.device
        phrases = find_phrases(
            chunks, min_words=config.min_phrase_words, max_words=config.max_phrase_words
        )
        table = PhraseTable.from_phrases(phrases, device=device)
        return Pool(chunks, table, make_scorer(chunks, device=device))

    @torch.inference_mode()
    def _decode(self, rows: list[Row], *, on_segment: OnSegment | None) -> None:
        encoder = self.model.prefix_encoder
        prefixes = [self.prefix_ids(row.request) for row in rows]
        capacity = max(len(ids) + row.num_left for ids, row in zip(prefixes, rows, strict=True))
        cache = encoder.new_cache(batch=len(rows), capacity=capacity)
        live = list(range(len(rows)))  # numbers of the texts that still grow
        held = list(range(len(rows)))  # numbers of the texts in the cache
        states = encoder.append_last(cache, prefixes)
        while True:
            self._step([rows[i] for i in live], states)
            if on_segment is not None:
                for i in live:
                    on_segment(i, self._cite_last(rows[i].text))
            live = [i for i in live if rows[i].num_left > 0]
            if not live:
                return
            if 2 * len(live) <= len(held):
                cache.keep([held.index(i) for i in live])
                held = list(live)
            growing = set(live)
            states = encoder.append_last(
                cache, [rows[i].new_ids if i in growing else [] for i in held]
            )

    def _step(self, rows: Sequence[Row], states: Tensor) -> None:
        encoder = self.model.prefix_encoder
        logits = encoder.token_logits(states)  # (num_rows, vocab_size)
        logits[:, self._special] = -torch.inf
        start_queries, end_queries = encoder.phrase_queries(states)
        for pool, members in _by_pool(rows):
            index = torch.tensor(members, device=states.device)
            starts, ends = pool.scorer.score_words(start_queries[index], end_queries[index])
            for k, member in enumerate(members):
                row = rows[member]
                bias = row.request.decoding.phrase_bias
                scores = pool.phrases.score(starts[k], ends[k], phrase_bias=bias)
                self._take(row, next_choice(logits[member], scores, pool.phrases))

    def _take(self, row: Row, distribution: NextChoice) -> None:
        choice = row.chooser.choose(distribution)
        probability = distribution.probability(choice)
        vocab_size = self.model.prefix_encoder.vocab_size
        splitter, chunks = self.model.splitter, row.pool.chunks
        if choice < vocab_size:
            row.new_ids = [choice]
            row.text.append_token(splitter.token_bytes[choice], probability=probability)
        else:
            phrases = row.pool.phrases.phrases
            occurrences = phrases.occurrences(choice - vocab_size)
            best = occurrences[int(distribution.scores[torch.from_numpy(occurrences)].argmax())]
            first, last = int(phrases.first[best]), int(phrases.last[best])
            token_ids = chunks.token_ids[
                chunks.word_tokens[first, 0] : chunks.word_tokens[last, 1]
            ][: row.num_left]
            chunk = int(np.searchsorted(chunks.word_offsets, first, side="right")) - 1
            copy = Copy(int(chunks.document_ordinals[chunk]), int(chunks.word_chars[first, 0]))
            row.new_ids = token_ids.tolist()
            row.text.append_copy(splitter.decode(token_ids), copy, probability=probability)
        row.num_tokens += len(row.new_ids)
        row.num_steps += 1

    def _cite_last(self, text: GrowingText) -> Segment:
        copy = text.copies[-1]
        documents = self._index.get_documents([] if copy is None else [copy.document_ordinal])
        return cite_segment(text.segments[-1], copy, documents)

    def _finish(self, row: Row, seconds: dict[str, float]) -> Generation:
        row.text.finish()
        documents = self._index.get_documents(row.text.document_ordinals())
        parts = zip(row.text.segments, row.text.copies, strict=True)
        segments = tuple(cite_segment(segment, copy, documents) for segment, copy in parts)
        manifest = self._index.manifest
        return Generation(
            prefix=row.request.prefix,
            text="".join(segment.text for segment in segments),
            corpus=manifest.corpus,
            index=manifest.digest,
            model=self.model.fingerprint,
            decoding=replace(row.request.decoding),
            num_steps=row.num_steps,
            num_tokens=row.num_tokens,
            seconds={part: round(value, 4) for part, value in seconds.items()},
            segments=segments,
        )


def _by_pool(rows: Sequence[Row]) -> list[tuple[Pool, list[int]]]:
    # rows that share a pool are scored together
    members: dict[int, list[int]] = {}
    for number, row in enumerate(rows):
        members.setdefault(id(row.pool), []).append(number)
    return [(rows[numbers[0]].pool, numbers) for numbers in members.values()]
