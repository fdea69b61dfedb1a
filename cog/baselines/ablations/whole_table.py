"""CoG without retrieval: prefixes go in, texts out of all phrases of an index come out.

Search is exact: every step scores every word of the index, in blocks, and memory holds a block and
what can be chosen, whatever the size of the index. The paper retrieves documents first.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import exp

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cog.baselines.ablations.table import Block, Table
from cog.baselines.ablations.tally import Tally
from cog.decoding.candidates import PhraseList, group_phrases
from cog.decoding.distribution import NextChoice, PhraseTable, next_choice
from cog.decoding.generator import CopyGenerator, TextEnd
from cog.decoding.plausibility import find_implausible
from cog.decoding.row import Row


@dataclass(slots=True)
class TableStep:
    """One step of one text.

    :param row: The text.
    :param logits: Token logits, minus infinity where a token may not be chosen. *Shape:*
        ``(vocab_size,)``
    :param is_left_out: Tokens that verification finds too unlikely; None without it. *Shape:*
        ``(vocab_size,)``
    :param tally: Sums over all candidates.
    :param kept: What can be chosen, by block: its number, phrases, keys and scores.
    """

    row: Row
    logits: Tensor
    is_left_out: Tensor | None
    tally: Tally
    kept: list[tuple[int, NDArray[np.int64], NDArray[np.uint64], Tensor]] = field(
        default_factory=list
    )

    @classmethod
    def begin(cls, row: Row, logits: Tensor) -> "TableStep":
        """Begin a step.

        :param row: The text.
        :param logits: Token logits after it. *Shape:* ``(vocab_size,)``
        :returns: The step.
        """
        decoding, is_left_out = row.request.decoding, None
        if decoding.is_verified:
            is_left_out = find_implausible(logits.unsqueeze(0), decoding)[0]
            logits = logits.masked_fill(is_left_out, -torch.inf)
        logits = logits / _get_temperature(row)
        return cls(row, logits, is_left_out, Tally(logits))

    def keep(self, number: int, block: Block, *, scores: Tensor, hot: Tensor) -> None:
        """Keep the phrases of a block that can be chosen.

        :param number: Number of the block.
        :param block: The block.
        :param scores: Scores of its phrases. *Shape:* ``(num_phrases,)``
        :param hot: Buckets in which they lie. *Shape:* ``(num_buckets,)``
        """
        phrases = hot[block.buckets].nonzero().squeeze(1)
        places = phrases.cpu().numpy()
        self.kept.append((number, places, block.keys[places], scores[phrases]))

    def weigh(self) -> tuple[NextChoice, PhraseTable]:
        """Join the vocabulary and what was kept, summed over occurrences of the same text.

        :returns: The distribution, and its phrases as positions among those kept.
        """
        keys = [keys for _, _, keys, _ in self.kept] or [np.zeros(0, dtype=np.uint64)]
        scores = [scores for _, _, _, scores in self.kept] or [self.logits[:0]]
        joined = np.concatenate(keys)
        positions = np.arange(len(joined), dtype=np.int32)
        phrases = group_phrases(PhraseList(positions, positions, joined))
        table = PhraseTable.from_phrases(phrases, device=self.logits.device)
        ordered = torch.cat(scores)[table.first]
        found = next_choice(self.logits, ordered, table)
        highest = float(self.logits.max())
        if len(ordered):
            highest = max(highest, float(ordered.max()))
        total = self.tally.total * exp(self.tally.highest - highest)
        num_left_out = self.tally.num_phrases - len(joined)
        return replace(found, total=total, num_left_out=num_left_out), table

    def find_place(self, position: int) -> tuple[int, int]:
        """Where a phrase lies that was kept.

        :param position: Its position among those kept.
        :returns: Number of its block, and of the phrase in it.
        """
        for number, places, _, _ in self.kept:
            if position < len(places):
                return number, int(places[position])
            position -= len(places)
        raise ValueError(f"no phrase {position}")


class WholeTableGenerator(CopyGenerator):
    """CoG whose candidates are all phrases of the index."""

    pool_source = Table

    @property
    def _table(self) -> Table:
        assert isinstance(self.pools, Table)
        return self.pools

    def _step(self, rows: Sequence[Row], ends: Sequence[TextEnd]) -> None:
        # two readings of the table, and a choice for each text
        steps = [TableStep.begin(row, end[1]) for row, end in zip(rows, ends, strict=True)]
        copying = [number for number, row in enumerate(rows) if not row.is_refused]
        if copying:
            states = torch.stack([ends[number][0] for number in copying])  # (num_rows, dim)
            queries = self.model.prefix_encoder.phrase_queries(states)
            live = [steps[number] for number in copying]
            for _, block in self._table.iter_blocks():
                for step, scores in self._score(block, live, queries):
                    step.tally.add(scores, block.buckets)
            hot = [step.tally.find_hot(step.row.request.decoding) for step in live]
            for number, block in self._table.iter_blocks():
                scored = self._score(block, live, queries)
                for (step, scores), buckets in zip(scored, hot, strict=True):
                    step.keep(number, block, scores=scores, hot=buckets)
        for step in steps:
            self._take(step)

    def _score(
        self, block: Block, steps: Sequence[TableStep], queries: tuple[Tensor, Tensor]
    ) -> Iterator[tuple[TableStep, Tensor]]:
        pool = block.pool
        both = pool.scorer.score_words(*queries)
        for step, start, end in zip(steps, *both, strict=True):
            row, decoding = step.row, step.row.request.decoding
            scores = pool.score(start, end, phrase_bias=decoding.phrase_bias, tail=row.tail)
            scores = self._limit_runs(row, scores, pool)
            if step.is_left_out is not None:
                scores.masked_fill_(step.is_left_out[pool.first_tokens], -torch.inf)
            yield step, scores / _get_temperature(row)

    def _take(self, step: TableStep) -> None:
        row, splitter = step.row, self.model.splitter
        distribution, table = step.weigh()
        choice = row.chooser.choose(distribution)
        probability = distribution.probability(choice)
        num_tokens = len(step.logits)
        if choice < num_tokens:
            row.write_token(choice, probability=probability, splitter=splitter)
            return
        occurrences = torch.from_numpy(table.phrases.occurrences(choice - num_tokens))
        best = int(distribution.scores[occurrences.to(distribution.scores.device)].argmax())
        number, phrase = step.find_place(int(table.phrases.first[int(occurrences[best])]))
        pool = self._table.get_block(number).pool
        listed = pool.phrases.phrases
        span = int(listed.first[phrase]), int(listed.last[phrase])
        row.write_phrase(pool.chunks, span, probability=probability, splitter=splitter)


def _get_temperature(row: Row) -> float:
    decoding = row.request.decoding
    return 1.0 if decoding.method == "greedy" else decoding.temperature
