"""The next-choice distribution.

Token logits and phrase scores go in, one probability per distinct text comes out.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from cog.decoding.candidates import Phrases


@dataclass(frozen=True, slots=True)
class NextChoice:
    """The joint distribution over the vocabulary and all distinct phrase texts.

    Differs from the paper, which keeps equal texts of different places apart: their probabilities
    are summed here.

    :param weights: Unnormalised probabilities, vocabulary first. *Shape:* ``(vocab_size +
        num_texts,)`` float32
    :param total: Their sum.
    :param num_tokens: How many of them are the vocabulary's.
    :param scores: Phrase scores. *Shape:* ``(num_phrases,)``
    """

    weights: Tensor
    total: float
    num_tokens: int
    scores: Tensor

    def probability(self, choice: int) -> float:
        """Probability of a choice, a position in ``weights``."""
        return float(self.weights[choice]) / self.total


def next_choice(token_logits: Tensor, scores: Tensor, phrases: Phrases) -> NextChoice:
    """One softmax over vocabulary tokens and phrases, summed over occurrences of the same text.

    A logit or a score of minus infinity is what may not be chosen.
    """
    vocab_size = len(token_logits)
    highest = token_logits.max()
    if len(scores):
        highest = torch.maximum(highest, scores.max())
    weights = torch.empty(vocab_size + phrases.num_texts, dtype=torch.float32, device=scores.device)
    torch.exp(token_logits - highest, out=weights[:vocab_size])
    num_repeated = phrases.num_repeated
    singles = vocab_size + phrases.num_repeated_texts
    torch.exp(scores[num_repeated:] - highest, out=weights[singles:])
    # added in the order of the phrases on any device, where index_add_ on a GPU adds in no order
    weights[vocab_size:singles] = torch.segment_reduce(
        torch.exp(scores[:num_repeated] - highest), "sum", offsets=phrases.repeated_bounds, axis=0
    )
    return NextChoice(weights, float(weights.sum(dtype=torch.float64)), vocab_size, scores)
