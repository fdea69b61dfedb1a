"""The next-choice distribution.

Token logits and word scores go in, one probability per distinct text comes out.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from cog.decoding.candidates import Phrases


@dataclass(frozen=True, slots=True)
class PhraseTable:
    """The phrases of a prompt as tensors.

    :param phrases: The phrases.
    :param first: First words. *Shape:* ``(num_phrases,)`` int32
    :param last: Last words. *Shape:* ``(num_phrases,)`` int32
    :param repeated_text: Text numbers of the repeated ones. *Shape:* ``(num_repeated,)`` int64
    """

    phrases: Phrases
    first: Tensor
    last: Tensor
    repeated_text: Tensor

    @classmethod
    def from_phrases(cls, phrases: Phrases, *, device: torch.device) -> "PhraseTable":
        """Move phrases to a device.

        :param phrases: The phrases.
        :param device: Where to.
        :returns: The table.
        """
        return cls(
            phrases,
            torch.from_numpy(phrases.first).to(device),
            torch.from_numpy(phrases.last).to(device),
            torch.from_numpy(phrases.repeated_text).to(device),
        )

    def score(self, start_scores: Tensor, end_scores: Tensor, *, phrase_bias: float) -> Tensor:
        """Score every phrase: ``q_start · S[first] + q_end · E[last]`` (CoG, eq. 1 and 2).

        The paper's phrase table is never built: word scores are added.

        :param start_scores: Start scores of all words. *Shape:* ``(num_words,)``
        :param end_scores: End scores of all words. *Shape:* ``(num_words,)``
        :param phrase_bias: Added to every phrase.
        :returns: *Shape:* ``(num_phrases,)``
        """
        scores = start_scores.index_select(0, self.first).add_(
            end_scores.index_select(0, self.last)
        )
        return scores.add_(phrase_bias) if phrase_bias else scores


@dataclass(frozen=True, slots=True)
class NextChoice:
    """The joint distribution over the vocabulary and all distinct phrase texts.

    Differs from the paper, which keeps equal texts of different places apart: their probabilities
    are summed here.

    :param weights: Unnormalised probabilities, vocabulary first. *Shape:* ``(vocab_size +
        num_texts,)`` float32
    :param total: Their sum.
    :param scores: Phrase scores. *Shape:* ``(num_phrases,)``
    """

    weights: Tensor
    total: float
    scores: Tensor

    def probability(self, choice: int) -> float:
        """Probability of a choice.

        :param choice: Position in ``weights``.
        :returns: Between 0 and 1.
        """
        return float(self.weights[choice]) / self.total


def next_choice(token_logits: Tensor, scores: Tensor, phrases: PhraseTable) -> NextChoice:
    """One softmax over vocabulary tokens and phrases, summed over occurrences of the same text.

    :param token_logits: Minus infinity where a token may not be chosen. *Shape:* ``(vocab_size,)``
    :param scores: Phrase scores. *Shape:* ``(num_phrases,)``
    :param phrases: The phrases, which say what has the same text.
    :returns: The distribution.
    """
    vocab_size, listed = len(token_logits), phrases.phrases
    highest = token_logits.max()
    if len(scores):
        highest = torch.maximum(highest, scores.max())
    weights = torch.empty(vocab_size + listed.num_texts, dtype=torch.float32, device=scores.device)
    torch.exp(token_logits - highest, out=weights[:vocab_size])
    num_repeated = listed.num_repeated
    singles = vocab_size + listed.num_repeated_texts
    torch.exp(scores[num_repeated:] - highest, out=weights[singles:])
    repeated = weights[vocab_size:singles].zero_()
    repeated.index_add_(0, phrases.repeated_text, torch.exp(scores[:num_repeated] - highest))
    return NextChoice(weights, float(weights.sum(dtype=torch.float64)), scores)
