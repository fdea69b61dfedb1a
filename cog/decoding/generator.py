"""The copy-generator: prefixes, a model and an index go in, cited texts come out."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from cog.decoding.batch import Ending
from cog.decoding.candidates import Phrases
from cog.decoding.choices import ScoreWords, score_choices
from cog.decoding.citations import cite_segment
from cog.decoding.distribution import NextChoice, next_choice
from cog.decoding.draft import Draft
from cog.decoding.guesses import MAX_SAMPLED, NO_GUESSES, Guesses, guess_tokens
from cog.decoding.in_order import OnSegment, write_in_order
from cog.decoding.pool_source import PoolSource
from cog.decoding.repeats import Refusable
from cog.decoding.request import Request, check_request, encode_prefix
from cog.decoding.row import Row
from cog.decoding.scoring import Query
from cog.decoding.workers import Job
from cog.errors import CogError
from cog.index.read.reader import PhraseIndex
from cog.index.search.contexts import sample_followers
from cog.index.search.filters import AllowedChunks
from cog.model.load import CogModel
from cog.records import Generation, Segment


class CopyGenerator:
    """Writes texts by copying phrases out of an index (CoG, section 3).

    Retrieval is done once per prefix. Every step scores the whole vocabulary and every admissible
    phrase of the retrieved chunks, takes one choice and appends it in one forward pass. The passes
    are those of a :class:`~cog.decoding.queue.TextQueue`, in which texts of several generators may
    stand.

    Only ``allowed_chunks`` may be copied; None for all.
    """

    pool_source: ClassVar[type[PoolSource]] = PoolSource

    def __init__(
        self,
        model: CogModel,
        index: PhraseIndex,
        *,
        allowed_chunks: AllowedChunks | None = None,
    ) -> None:
        self.model = model
        self.pools = self.pool_source(model, index, allowed_chunks=allowed_chunks)
        self.index = index
        self._refusable = Refusable.find(model.splitter)

    def generate(
        self, requests: Sequence[Request], *, on_segment: OnSegment | None = None
    ) -> list[Generation]:
        """Write texts together; each is the same in any company, up to the encoder's rounding.

        ``on_segment`` is called with the number of a text and each of its segments as soon as it is
        final. If one text cannot be written, a ``CogError`` says why.
        """
        return list(self.generate_each(requests, batch_size=len(requests), on_segment=on_segment))

    def generate_each(
        self, requests: Iterable[Request], *, batch_size: int, on_segment: OnSegment | None = None
    ) -> Iterator[Generation]:
        """Write texts that come and go in one batch, as :meth:`generate` does.

        Gives them in the order asked, each as soon as it and those before it are there.
        """
        for each in write_in_order(self, requests, batch_size=batch_size, on_segment=on_segment):
            if isinstance(each, CogError):
                raise each
            yield each

    def adapt(self, request: Request) -> Request:
        """The request that is carried out in the place of another, and told; here the same."""
        return request

    def prefix_ids(self, request: Request) -> list[int]:
        """The tokens the prefix encoder reads, the begin token first; of a long prefix the last."""
        return encode_prefix(request, self.model)

    def num_unread_tokens(self, request: Request) -> int:
        """Number of a prefix's first tokens that are beyond the model's context; rarely any."""
        has_begin = self.model.prefix_encoder.begin_token_id is not None
        num_ids = len(self.model.splitter.encode(request.prefix)) + has_begin
        return num_ids - len(self.prefix_ids(request))

    def check(self, request: Request) -> None:
        """Refuse what cannot be written with a ``GenerationError``."""
        check_request(self.adapt(request), self.model.prefix_encoder)

    @torch.inference_mode()
    def begin(self, request: Request) -> tuple[Row, dict[str, float]]:
        """Begin a text; all that is read from disk for its first step is read here.

        Second come the seconds of ``retrieve`` and ``gather``.
        """
        request = self.adapt(request)
        pool, seconds = self.pools.get_pool(request)
        ids = self.prefix_ids(request)
        return Row.begin(request, pool, ids, refusable=self._refusable), seconds

    def draft(
        self, texts: Sequence[tuple[Row, Ending]]
    ) -> tuple[list[Draft | CogError | None], list[Job]]:
        """Propose how some texts go on: where they were, or by a choice among everything.

        The jobs put the drafts in the place of None, in any order and side by side; in that of a
        text that cannot go on, what ends it.
        """
        drafts: list[Draft | CogError | None] = [None] * len(texts)
        groups = _group_by_pool(texts, range(len(texts)))
        return drafts, [partial(self._draft_all, texts, group, drafts) for group in groups]

    def _draft_all(
        self,
        texts: Sequence[tuple[Row, Ending]],
        group: Sequence[int],
        drafts: list[Draft | CogError | None],
    ) -> None:
        for k in group:
            row, (_, logits) = texts[k]
            try:
                self.look_around(row)
                drafts[k] = row.go_on(logits)
            except CogError as error:
                drafts[k] = error
        # pools may have grown
        for left in _group_by_pool(texts, [k for k in group if drafts[k] is None]):
            self._choose_all(texts, left, drafts)

    def _choose_all(
        self,
        texts: Sequence[tuple[Row, Ending]],
        group: Sequence[int],
        drafts: list[Draft | CogError | None],
    ) -> None:
        # texts that share a pool are scored together
        pool = texts[group[0]][0].pool
        states = torch.stack([texts[k][1][0] for k in group])  # (num_members, dim)
        query = Query(pool.scorer, *self.model.prefix_encoder.phrase_queries(states))
        for place, k in enumerate(group):
            row, (_, logits) = texts[k]
            try:
                drafts[k] = self._choose(row, logits, partial(query.score, place))
            except CogError as error:
                drafts[k] = error

    def look_around(self, row: Row) -> None:
        """Add places of the index to a text's pool where stands what the text ends with."""
        decoding = row.request.decoding
        if decoding.top_k_documents and decoding.context_weight:
            pool, row.num_added = self.pools.add_places(
                row.pool, row.token_ids, decoding, num_added=row.num_added
            )
            if pool is not row.pool:
                row.enter(pool)

    def guess(self, row: Row, draft: Draft, *, max_tokens: int) -> Guesses:
        """Guess what is written behind a draft; a text's last token, never read, is no guess."""
        max_depth = row.num_left - len(draft.token_ids) - 1
        if max_depth < 1:
            return NO_GUESSES
        return guess_tokens(
            partial(sample_followers, self.index.contexts, max_sampled=MAX_SAMPLED),
            [*row.token_ids, *draft.token_ids],
            max_tokens=max_tokens,
            max_depth=max_depth,
        )

    def _choose(self, row: Row, logits: Tensor, score_words: ScoreWords) -> Draft:
        decoding = row.request.decoding
        choices = score_choices(
            row.pool,
            logits,
            score_words,
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

    def write(
        self, row: Row, draft: Draft, num_accepted: int, probabilities: Sequence[float]
    ) -> int:
        """Write what was accepted of a draft, and give the number of tokens written.

        Probabilities are those of its tokens but the first, as many as were looked at.
        """
        return row.write(
            draft,
            num_accepted,
            probabilities,
            splitter=self.model.splitter,
            min_words=self.model.config.min_phrase_words,
        )

    def report(self, row: Row) -> tuple[tuple[Segment, ...], Segment | None]:
        """The segments that nothing can change any more, with their sources, each told once.

        Second comes the copy behind them, which may go on, if it became longer since.
        """
        first, num_told = row.num_reported, row.num_told
        row.num_reported, row.num_told = row.text.num_final, row.text.num_open_characters
        num_new = row.num_reported - first
        has_grown = row.num_told > 0 and (num_new > 0 or row.num_told > num_told)
        if not (num_new or has_grown):
            return (), None
        segments = self._cite(row, first=first)
        return segments[:num_new], segments[num_new] if has_grown else None

    def _cite(self, row: Row, *, first: int = 0) -> tuple[Segment, ...]:
        text = row.text
        if missing := text.document_ordinals(first=first) - row.documents.keys():
            row.documents |= self.index.get_documents(missing)
        parts = zip(text.segments[first:], text.copies[first:], strict=True)
        return tuple(
            cite_segment(segment, copy, row.documents, get_corpus_id=self.index.get_corpus_id)
            for segment, copy in parts
        )

    def finish(self, row: Row, seconds: dict[str, float]) -> Generation:
        """Make the record of a text that has its length, with the seconds that it took by part."""
        row.text.finish()
        segments = self._cite(row)
        return Generation(
            prefix=row.request.prefix,
            text="".join(segment.text for segment in segments),
            corpus=self.index.corpus,
            index=self.index.digest,
            model=self.model.fingerprint,
            decoding=row.request.decoding,
            num_steps=row.num_steps,
            num_passes=row.num_passes,
            num_tokens=row.num_tokens,
            seconds={part: round(value, 4) for part, value in seconds.items()},
            segments=segments,
            precision=self.model.prefix_encoder.precision,
        )


def _group_by_pool(texts: Sequence[tuple[Row, Ending]], numbers: Iterable[int]) -> list[list[int]]:
    groups: dict[int, list[int]] = {}
    for k in numbers:
        groups.setdefault(id(texts[k][0].pool), []).append(k)
    return list(groups.values())
