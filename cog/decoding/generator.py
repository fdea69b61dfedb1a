"""The copy-generator: prefixes, a model and an index go in, cited texts come out."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cog.decoding.citations import cite_segment
from cog.decoding.distribution import NextChoice, PhraseTable, next_choice
from cog.decoding.plausibility import count_plausible, find_implausible
from cog.decoding.pool import Pool, PoolSource
from cog.decoding.request import Request, check_request, encode_prefix
from cog.decoding.row import Row
from cog.decoding.text import GrowingText
from cog.decoding.verbatim import VerbatimLimit
from cog.decoding.workers import Workers
from cog.index.union_index import AnyIndex
from cog.model.cache import PrefixCache
from cog.model.load import CogModel
from cog.records import Generation, Segment

OnSegment = Callable[[int, Segment], None]
TextEnd = tuple[Tensor, Tensor]  # hidden state at the last token of a text, and token logits


class CopyGenerator:
    """Writes texts by copying phrases out of an index (CoG, section 3).

    Retrieval is done once per prefix. Every step scores the whole vocabulary and every admissible
    phrase of the retrieved chunks, takes one choice and appends it in one forward pass; all texts
    of a batch share that pass.

    :param model: The model.
    :param index: The open index.
    :param allowed_chunks: Chunks that may be copied from; None for all. *Shape:*
        ``(num_chunks,)``
    """

    pool_source: ClassVar[type[PoolSource]] = PoolSource

    def __init__(
        self,
        model: CogModel,
        index: AnyIndex,
        *,
        allowed_chunks: NDArray[np.bool_] | None = None,
    ) -> None:
        self.model = model
        self.pools = self.pool_source(model, index, allowed_chunks=allowed_chunks)
        self.index = index
        self._workers = Workers(model.prefix_encoder.device)
        self._verbatim = VerbatimLimit(
            model.splitter, lambda ordinal: index.get_documents([ordinal])[ordinal].text
        )
        self._special = torch.from_numpy(model.splitter.special_token_ids).to(
            model.prefix_encoder.device
        )

    def generate(
        self, requests: Sequence[Request], *, on_segment: OnSegment | None = None
    ) -> list[Generation]:
        """Write a batch of texts together.

        :param requests: The texts to write; each comes out the same in any batch, up to rounding
            in the prefix encoder.
        :param on_segment: Called with the number of a text and each of its segments as soon as it
            is final.
        :returns: The texts, in the order asked. Their seconds are those of the batch, divided by
            the number of texts.
        :raises GenerationError: If a prefix or a setting cannot be used.
        """
        if not requests:
            return []
        requests = [self.adapt(request) for request in requests]
        for request in requests:
            check_request(request, self.model.prefix_encoder)
        pools, seconds = self.pools.make_pools(requests)
        rows = [Row.begin(request, pool) for request, pool in zip(requests, pools, strict=True)]
        began = time.perf_counter()
        self._decode(rows, on_segment=on_segment)
        seconds["decode"] = time.perf_counter() - began
        shared = {part: round(value / len(rows), 4) for part, value in seconds.items()}
        return [self._finish(row, shared) for row in rows]

    def adapt(self, request: Request) -> Request:
        """The request that is carried out in the place of another; here the same.

        :param request: What is asked.
        :returns: What is done, and what the generation states.
        """
        return request

    def prefix_ids(self, request: Request) -> list[int]:
        """The tokens the prefix encoder reads: a prefix's last ones, if it is too long.

        :param request: The text to write.
        :returns: Token ids, the begin token first.
        """
        return encode_prefix(request, self.model)

    def num_unread_tokens(self, request: Request) -> int:
        """Number of a prefix's first tokens that are beyond the model's context.

        :param request: The text to write.
        :returns: The count; 0 for nearly every prefix.
        """
        has_begin = self.model.prefix_encoder.begin_token_id is not None
        num_ids = len(self.model.splitter.encode(request.prefix)) + has_begin
        return num_ids - len(self.prefix_ids(request))

    @torch.inference_mode()
    def _decode(self, rows: list[Row], *, on_segment: OnSegment | None) -> None:
        encoder = self.model.prefix_encoder
        prefixes = [self.prefix_ids(row.request) for row in rows]
        capacity = max(len(ids) + row.num_left for ids, row in zip(prefixes, rows, strict=True))
        cache = encoder.new_cache(batch=len(rows), capacity=capacity)
        live = held = list(range(len(rows)))  # texts that grow, and texts in the cache
        states = encoder.append_last(cache, prefixes)
        ends = dict(zip(live, zip(states, self._token_logits(states), strict=True), strict=True))
        while live:
            self._step([rows[i] for i in live], [ends[i] for i in live])
            pending = [i for i in live if rows[i].num_left > 0 or rows[i].needs_check]
            unsure = [i for i in pending if rows[i].needs_check]
            self._report(rows, [i for i in live if i not in unsure], on_segment)
            if not pending:
                break
            if 2 * len(pending) <= len(held):
                cache.keep([held.index(i) for i in pending])
                held = pending
            ends |= self._append(cache, rows, held=held, growing=pending)
            self._report(rows, unsure, on_segment)
            live = [i for i in pending if rows[i].num_left > 0]
        for row in rows:
            row.text.finish()
        self._report(rows, range(len(rows)), on_segment)

    def _step(self, rows: Sequence[Row], ends: Sequence[TextEnd]) -> None:
        # score everything and take one choice for each text
        encoder, splitter = self.model.prefix_encoder, self.model.splitter
        states = torch.stack([state for state, _ in ends])  # (num_rows, dim)
        start_queries, end_queries = encoder.phrase_queries(states)

        def take(pool: Pool, members: list[int]) -> None:
            nothing = start_queries.new_full((len(pool.first_tokens),), -torch.inf)
            found = dict.fromkeys(members, nothing)
            if copying := [member for member in members if not rows[member].is_refused]:
                index = torch.tensor(copying, device=states.device)
                both = pool.scorer.score_words(start_queries[index], end_queries[index])
                for member, start, end in zip(copying, *both, strict=True):
                    bias, tail = rows[member].request.decoding.phrase_bias, rows[member].tail
                    scores = pool.score(start, end, phrase_bias=bias, tail=tail)
                    found[member] = self._limit_runs(rows[member], scores, pool)
            for member, scores in found.items():
                distribution = self._weigh(ends[member][1], scores, row=rows[member])
                rows[member].take(distribution, vocab_size=encoder.vocab_size, splitter=splitter)

        self._workers.run([partial(take, pool, members) for pool, members in _by_pool(rows)])

    def _weigh(self, logits: Tensor, scores: Tensor, *, row: Row) -> NextChoice:
        # the distribution that a text's choice is drawn from
        decoding, pool = row.request.decoding, row.pool
        if decoding.is_verified:
            is_left_out = find_implausible(logits.unsqueeze(0), decoding)[0]
            logits = logits.masked_fill(is_left_out, -torch.inf)
            scores.masked_fill_(is_left_out.index_select(0, pool.first_tokens), -torch.inf)
        if decoding.method != "greedy" and decoding.temperature != 1.0:
            logits, scores = logits / decoding.temperature, scores / decoding.temperature
        return self._join(logits, scores, pool.phrases)

    def _join(self, logits: Tensor, scores: Tensor, phrases: PhraseTable) -> NextChoice:
        return next_choice(logits, scores, phrases)

    def _limit_runs(self, row: Row, scores: Tensor, pool: Pool) -> Tensor:
        limit = row.request.decoding.max_verbatim_words
        if not limit:
            return scores
        return self._verbatim.mask(scores, row.text, pool, max_words=limit)

    def _append(
        self, cache: PrefixCache, rows: Sequence[Row], *, held: list[int], growing: list[int]
    ) -> dict[int, TextEnd]:
        # one pass; copies are cut where they stop being plausible; the ends that texts go on from,
        # but for those that nothing was left of, which go on from where they were
        new_ids = [rows[i].new_ids if i in growing else [] for i in held]
        states = self.model.prefix_encoder.append(cache, new_ids)
        checked = [
            len(ids) if ids and rows[i].needs_check else 1
            for i, ids in zip(held, new_ids, strict=True)
        ]
        lasts = np.cumsum([len(ids) for ids in new_ids]).tolist()
        needed = [
            position
            for ids, last, count in zip(new_ids, lasts, checked, strict=True)
            for position in range(last - count, last)
            if ids
        ]
        states = states[torch.tensor(needed, device=states.device)]
        logits = self._token_logits(states)  # once, for checks and for the next choices
        ends: dict[int, TextEnd] = {}
        begin = 0
        for place, (i, ids, count) in enumerate(zip(held, new_ids, checked, strict=True)):
            if not ids:
                continue
            num_kept = count
            if count > 1:
                num_plausible = count_plausible(
                    logits[begin : begin + count - 1], ids, rows[i].request.decoding
                )
                num_kept = rows[i].cut(num_plausible, splitter=self.model.splitter)
                cache.cut(place, cache.lengths[place] - (count - num_kept))
            if num_kept:
                ends[i] = states[begin + num_kept - 1], logits[begin + num_kept - 1]
            begin += count
        return ends

    def _token_logits(self, states: Tensor) -> Tensor:
        logits = self.model.prefix_encoder.token_logits(states)
        logits[:, self._special] = -torch.inf
        return logits

    def _report(
        self, rows: Sequence[Row], numbers: Sequence[int], on_segment: OnSegment | None
    ) -> None:
        if on_segment is None:
            return
        for i in numbers:
            row, text = rows[i], rows[i].text
            segments = self._cite(text, first=row.num_reported)
            for segment in segments[: text.num_final - row.num_reported]:
                on_segment(i, segment)
            row.num_reported = text.num_final

    def _cite(self, text: GrowingText, *, first: int = 0) -> tuple[Segment, ...]:
        documents = self.index.get_documents(text.document_ordinals(first=first))
        parts = zip(text.segments[first:], text.copies[first:], strict=True)
        return tuple(
            cite_segment(segment, copy, documents, get_corpus_id=self.index.get_corpus_id)
            for segment, copy in parts
        )

    def _finish(self, row: Row, seconds: dict[str, float]) -> Generation:
        segments = self._cite(row.text)
        return Generation(
            prefix=row.request.prefix,
            text="".join(segment.text for segment in segments),
            corpus=self.index.manifest.corpus,
            index=self.index.manifest.digest,
            model=self.model.fingerprint,
            decoding=row.request.decoding,
            num_steps=row.num_steps,
            num_tokens=row.num_tokens,
            seconds=seconds,
            segments=segments,
        )


def _by_pool(rows: Sequence[Row]) -> list[tuple[Pool, list[int]]]:
    # rows that share a pool are scored together
    members: dict[int, list[int]] = {}
    for number, row in enumerate(rows):
        members.setdefault(id(row.pool), []).append(number)
    return [(rows[numbers[0]].pool, numbers) for numbers in members.values()]
