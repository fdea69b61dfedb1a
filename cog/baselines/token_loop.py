"""Token by token: a batch of requests and a model go in, texts come out, with a key-value cache."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cog.decoding.distribution import NextChoice
from cog.decoding.request import Request, check_request, encode_prefix
from cog.decoding.sampling import Chooser
from cog.decoding.text import GrowingText
from cog.model.cache import PrefixCache
from cog.model.load import CogModel

# hidden states (batch, dim) and unnormalised probabilities (batch, vocab_size) go in, what is
# chosen from comes out (batch, vocab_size)
Blend = Callable[[Tensor, Tensor], Tensor]
LEAST_WEIGHT = 1e-38  # of a token beside 1 for the likeliest: what float32 has left


@dataclass(slots=True)
class TokenRow:
    """One text of a batch while it is written."""

    request: Request
    chooser: Chooser
    text: GrowingText = field(default_factory=GrowingText)
    new_ids: list[int] = field(default_factory=list)  # of the last step: the cache lacks it
    num_tokens: int = 0

    @property
    def is_done(self) -> bool:
        """Whether the text has its length."""
        return self.num_tokens >= self.request.decoding.max_new_tokens

    def take(self, weights: Tensor, token_bytes: Sequence[bytes]) -> None:
        """Choose a token by unnormalised probabilities, and append it."""
        total = float(weights.sum(dtype=torch.float64))
        choice = self.chooser.choose(NextChoice(weights, total, len(weights), weights[:0]))
        self.chooser.settle()
        probability = float(weights[choice]) / total
        self.text.append_token(token_bytes[choice], probability=probability)
        self.new_ids = [choice]
        self.num_tokens += 1


class TokenLoop:
    """Writes texts token by token; all texts of a batch share each forward pass."""

    def __init__(self, model: CogModel) -> None:
        self.model = model
        encoder = model.prefix_encoder
        unwritable = model.splitter.list_unwritable(encoder.vocab_size)
        self._unwritable = torch.from_numpy(unwritable).to(encoder.device)

    @torch.inference_mode()
    def write(
        self, requests: Sequence[Request], *, blend: Blend | None = None
    ) -> list[GrowingText]:
        """Write a batch; ``blend`` changes the distribution of every step."""
        encoder, token_bytes = self.model.prefix_encoder, self.model.splitter.token_bytes
        for request in requests:
            check_request(request, encoder)
        rows = [TokenRow(each, Chooser(each.decoding, each.prefix)) for each in requests]
        new_ids = [encode_prefix(request, self.model) for request in requests]
        lengths = [
            len(ids) + request.decoding.max_new_tokens
            for ids, request in zip(new_ids, requests, strict=True)
        ]
        cache: PrefixCache = encoder.new_cache(batch=len(rows), capacity=max(lengths))
        live = rows
        while live:
            states = self.append_last(cache, new_ids)
            temperatures = [row.request.decoding.temperature for row in live]
            weights = self.weigh_tokens(states, temperatures)
            if blend is not None:
                weights = blend(states, weights)
            for row, row_weights in zip(live, weights, strict=True):
                row.take(row_weights, token_bytes)
            live = [row for row in live if not row.is_done]
            new_ids = [[] if row.is_done else row.new_ids for row in rows]
        for row in rows:
            row.text.finish()
        return [row.text for row in rows]

    @torch.inference_mode()
    def score_tokens(
        self, request: Request, token_ids: NDArray[np.int32], *, blend: Blend | None = None
    ) -> NDArray[np.float64]:
        """Log-probability of each token of a text, given its prefix and what stands before it.

        There is one token at least. Of the request's decoding nothing counts; ``blend`` changes the
        distributions. *Shape:* ``(num_tokens,)``
        """
        decoding = replace(request.decoding, max_new_tokens=len(token_ids))
        prefix = encode_prefix(replace(request, decoding=decoding), self.model)
        read = [prefix + token_ids[:-1].tolist()]
        cache = self.model.prefix_encoder.new_cache(batch=1, capacity=len(read[0]))
        states = self.append(cache, read)[len(prefix) - 1 :]  # one per token of the text
        weights = self.weigh_tokens(states, [1.0] * len(states))
        if blend is not None:
            weights = blend(states, weights)
        wanted = torch.from_numpy(token_ids.astype(np.int64)).to(weights.device)
        chosen = weights.gather(1, wanted[:, None])[:, 0].double().clamp_min(LEAST_WEIGHT)
        found: NDArray[np.float64] = (chosen / weights.double().sum(dim=1)).log().cpu().numpy()
        return found

    def append(self, cache: PrefixCache, token_ids: Sequence[Sequence[int]]) -> Tensor:
        """Append tokens to the texts of a batch; the states of all, text by text."""
        return self.model.prefix_encoder.append(cache, token_ids)

    def append_last(self, cache: PrefixCache, token_ids: Sequence[Sequence[int]]) -> Tensor:
        """As :meth:`append`, but states at the last token of the texts that got some."""
        return self.model.prefix_encoder.append_last(cache, token_ids)

    def weigh_tokens(self, states: Tensor, temperatures: Sequence[float]) -> Tensor:
        """Unnormalised probabilities of the vocabulary after each state; what is no text has none.

        They are ``exp`` of the logits, divided by a temperature each, less the largest. *Shape:*
        ``(batch, dim)`` to ``(batch, vocab_size)``
        """
        logits = self.model.prefix_encoder.token_logits(states)
        logits[:, self._unwritable] = -torch.inf
        logits.sub_(logits.max(dim=1, keepdim=True).values)
        if any(temperature != 1.0 for temperature in temperatures):
            logits /= torch.tensor(temperatures, device=logits.device)[:, None]
        return logits.exp_()
