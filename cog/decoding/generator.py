"""The copy-generator: prefixes, a model and an index go in, cited texts come out."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cog.decoding.candidates import Phrases
from cog.decoding.choices import score_choices
from cog.decoding.citations import cite_segment
from cog.decoding.distribution import NextChoice, next_choice
from cog.decoding.draft import Draft
from cog.decoding.plausibility import verify_draft
from cog.decoding.pool_source import PoolSource
from cog.decoding.repeats import find_word_begins
from cog.decoding.request import Request, check_request, encode_prefix
from cog.decoding.row import Row
from cog.decoding.text import GrowingText
from cog.decoding.workers import Workers
from cog.index.reader import PhraseIndex
from cog.model.cache import PrefixCache
from cog.model.load import CogModel
from cog.records import Generation, Segment

OnSegment = Callable[[int, Segment], None]
Ending = tuple[Tensor, Tensor]  # hidden state at the last token of a text, and token logits


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
        index: PhraseIndex,
        *,
        allowed_chunks: NDArray[np.bool_] | None = None,
    ) -> None:
        self.model = model
        self.pools = self.pool_source(model, index, allowed_chunks=allowed_chunks)
        self.index = index
        self._begins_word = find_word_begins(model.splitter)
        self._workers = Workers(model.prefix_encoder.device)
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
        self.pools.check_bits(requests, pools)
        rows = [
            Row.begin(request, pool, self.prefix_ids(request), begins_word=self._begins_word)
            for request, pool in zip(requests, pools, strict=True)
        ]
        began = time.perf_counter()
        self._decode(rows, on_segment=on_segment)
        seconds["decode"] = time.perf_counter() - began
        shared = {part: round(value / len(rows), 4) for part, value in seconds.items()}
        return [self._finish(row, shared) for row in rows]

    def adapt(self, request: Request) -> Request:
        """The request that is carried out in the place of another; here the same.

        Gives what is done, and what the generation states.
        """
        return request

    def prefix_ids(self, request: Request) -> list[int]:
        """The tokens the prefix encoder reads: a prefix's last ones, if it is too long.

        Gives token ids, the begin token first.
        """
        return encode_prefix(request, self.model)

    def num_unread_tokens(self, request: Request) -> int:
        """Number of a prefix's first tokens that are beyond the model's context.

        Gives the count; 0 for nearly every prefix.
        """
        has_begin = self.model.prefix_encoder.begin_token_id is not None
        num_ids = len(self.model.splitter.encode(request.prefix)) + has_begin
        return num_ids - len(self.prefix_ids(request))

    @torch.inference_mode()
    def _decode(self, rows: list[Row], *, on_segment: OnSegment | None) -> None:
        encoder = self.model.prefix_encoder
        capacity = max(len(row.token_ids) + row.num_left for row in rows)
        cache = encoder.new_cache(batch=len(rows), capacity=capacity)
        live = held = list(range(len(rows)))  # texts that grow, and texts in the cache
        states = encoder.append_last(cache, [row.token_ids for row in rows])
        ends = dict(zip(live, zip(states, self._token_logits(states), strict=True), strict=True))
        while live:
            drafts = dict(zip(live, self._draft([(rows[i], ends[i]) for i in live]), strict=True))
            for i in live:  # what fills a text and needs no check is not read
                if len(drafts[i].token_ids) == 1 >= rows[i].num_left:
                    self._write(rows[i], drafts.pop(i), 1, ())
            if drafts:
                if 2 * len(drafts) <= len(held):
                    cache.keep([held.index(i) for i in drafts])
                    held = list(drafts)
                ends = self._read(cache, rows, held=held, drafts=drafts)
            self._report(rows, live, on_segment)
            live = [i for i in live if rows[i].num_left > 0]
        for row in rows:
            row.text.finish()
        self._report(rows, range(len(rows)), on_segment)

    def _draft(self, texts: Sequence[tuple[Row, Ending]]) -> list[Draft]:
        # go on with each text, or score everything and take one choice
        drafts = [row.go_on(logits) for row, (_, logits) in texts]
        members: dict[int, list[int]] = {}
        for k, (row, _) in enumerate(texts):
            if drafts[k] is None:
                self._look_around(row)
                members.setdefault(id(row.pool), []).append(k)

        def choose(group: list[int]) -> None:
            # texts that share a pool are scored together
            pool = texts[group[0]][0].pool
            states = torch.stack([texts[k][1][0] for k in group])  # (num_members, dim)
            scored = None
            if len(pool.phrases):
                queries = self.model.prefix_encoder.phrase_queries(states)
                scored = pool.scorer.score_words(*queries)
            for place, k in enumerate(group):
                row, (_, logits) = texts[k]
                of_words = None if scored is None else (scored[0][place], scored[1][place])
                drafts[k] = self._choose(row, logits, of_words)

        self._workers.run([partial(choose, group) for group in members.values()])
        return [draft for draft in drafts if draft is not None]

    def _look_around(self, row: Row) -> None:
        # add places of the index where what the text ends with stands
        decoding = row.request.decoding
        if decoding.top_k_documents and decoding.context_weight:
            pool, row.num_added = self.pools.add_places(
                row.pool, row.token_ids, decoding, num_added=row.num_added
            )
            if pool is not row.pool:
                row.enter(pool)

    def _choose(self, row: Row, logits: Tensor, word_scores: tuple[Tensor, Tensor] | None) -> Draft:
        decoding = row.request.decoding
        choices = score_choices(
            row.pool,
            logits,
            word_scores,
            end=row.end,
            decoding=decoding,
            batch_phrases=self.model.config.batch_phrases,
        )
        tokens, scores = choices.token_logits, choices.phrase_scores
        if decoding.method != "greedy" and decoding.temperature != 1.0:
            tokens, scores = tokens / decoding.temperature, scores / decoding.temperature
        distribution = self._join(tokens, scores, row.pool.phrases)
        return row.choose(choices, distribution, logits)

    def _join(self, logits: Tensor, scores: Tensor, phrases: Phrases) -> NextChoice:
        return next_choice(logits, scores, phrases)

    def _read(
        self, cache: PrefixCache, rows: Sequence[Row], *, held: list[int], drafts: dict[int, Draft]
    ) -> dict[int, Ending]:
        # one pass reads all drafts; what is accepted is written, the rest forgotten; the ends that
        # the texts go on from
        proposed = [drafts[i].token_ids if i in drafts else [] for i in held]
        states = self.model.prefix_encoder.append(cache, proposed)
        logits = self._token_logits(states)  # once, for checks and for the next choices
        ends: dict[int, Ending] = {}
        begin = 0
        for place, (i, ids) in enumerate(zip(held, proposed, strict=True)):
            if not ids:
                continue
            num_accepted: int = 1
            probabilities: Sequence[float] = ()
            if len(ids) > 1:
                num_accepted, probabilities = verify_draft(
                    logits[begin : begin + len(ids) - 1],
                    drafts[i],
                    rows[i].request.decoding,
                    first=1,
                )
            num_kept = self._write(rows[i], drafts[i], num_accepted, probabilities)
            cache.cut(place, cache.lengths[place] - (len(ids) - num_kept))
            ends[i] = states[begin + num_kept - 1], logits[begin + num_kept - 1]
            begin += len(ids)
        return ends

    def _write(
        self, row: Row, draft: Draft, num_accepted: int, probabilities: Sequence[float]
    ) -> int:
        return row.write(
            draft,
            num_accepted,
            probabilities,
            splitter=self.model.splitter,
            min_words=self.model.config.min_phrase_words,
        )

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
            corpus=self.index.corpus,
            index=self.index.digest,
            model=self.model.fingerprint,
            decoding=row.request.decoding,
            num_steps=row.num_steps,
            num_tokens=row.num_tokens,
            seconds=seconds,
            segments=segments,
            precision=self.model.prefix_encoder.precision,
        )
