"""The prefix encoder: tokens go in, by a cache; prefix vectors and token logits come out."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cog.model.cache import NO_BRANCHES, Branches, PrefixCache
from cog.model.matrices import can_pack
from cog.model.protocols import CausalNetwork
from cog.model.threads import PaceSetter
from cog.records import BFLOAT16, FLOAT32

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CHEAP_TOKENS = 6  # whose products take as long as those of one (docs/performance.md)
PREFILL_TOKENS = 512  # tokens of one prefix encoded in one pass; bounds the memory of long prefixes


class PrefixEncoder:
    """A causal language model read at its last token (CoG, section 3.1).

    Differs from the paper where there is a query projection ``W_q``, *shape* ``(dim, dim)``: the
    query of phrases is then ``W_q h`` instead of ``h``.
    """

    def __init__(
        self, network: CausalNetwork, *, query_projection: Tensor | None, begin_token_id: int | None
    ) -> None:
        self.network = network
        self.precision, self.device = network.precision, network.device
        self.vocab_size, self.max_positions = network.vocab_size, network.max_positions
        self.begin_token_id = begin_token_id
        self._projection = query_projection
        if query_projection is not None:
            self._projection = query_projection.to(network.device)
        # packed products are mostly the same on any number of threads, to the last bit
        kept_as = {BFLOAT16: torch.bfloat16, FLOAT32: torch.float32}.get(self.precision)
        is_packed = kept_as is not None and can_pack(
            torch.empty(0, dtype=kept_as, device=self.device)
        )
        self._pace = PaceSetter() if is_packed else None

    @property
    def num_cheap_tokens(self) -> int:
        """Number of tokens that a pass reads in about the time of one; 1 if none can be packed."""
        return CHEAP_TOKENS if can_pack(torch.empty(0, device=self.device)) else 1

    def get_modules(self) -> "PreTrainedModel":
        """The model of transformers that reads, where it was loaded to keep its modules."""
        from cog.model.modules import CausalModules

        assert isinstance(self.network, CausalModules)
        return self.network.model

    def new_cache(self, *, batch: int, capacity: int) -> PrefixCache:
        """An empty cache for a number of prefixes, with room for some positions; it grows."""
        return PrefixCache(batch=batch, capacity=capacity, device=self.device)

    @torch.inference_mode()
    def append(
        self,
        cache: PrefixCache,
        token_ids: Sequence[Sequence[int]],
        branches: Branches = NO_BRANCHES,
    ) -> Tensor:
        """Append tokens to the prefixes of a cache in one pass; some may get none, not all.

        Of prefixes whose new tokens are no chain, branches say what each of these follows. Gives
        hidden states of the new tokens, packed prefix by prefix. *Shape:* ``(num_tokens, dim)``
        """
        layout = cache.plan([len(ids) for ids in token_ids], branches)
        packed = torch.tensor([i for ids in token_ids for i in ids], device=self.device)
        read = partial(self.network.read, packed, layout, cache)
        states = self._pace.run("read", len(packed), read) if self._pace else read()
        cache.commit()
        return states

    def append_last(self, cache: PrefixCache, token_ids: Sequence[Sequence[int]]) -> Tensor:
        """Append tokens and return the hidden state at the last token of each prefix that got some.

        Long prefixes are read block by block. *Shape:* ``(num_rows, dim)``
        """
        longest = max(len(ids) for ids in token_ids)
        last: dict[int, Tensor] = {}
        for begin in range(0, longest, PREFILL_TOKENS):
            blocks = [list(ids[begin : begin + PREFILL_TOKENS]) for ids in token_ids]
            states = self.append(cache, blocks)
            end = 0
            for row, block in enumerate(blocks):
                end += len(block)
                if block:
                    last[row] = states[end - 1]
        return torch.stack([last[row] for row in sorted(last)])

    @torch.inference_mode()
    def token_logits(self, hidden_states: Tensor) -> Tensor:
        """Scores of the vocabulary: ``h · E_v`` (CoG, section 2).

        *Shape:* ``(batch, dim)`` to ``(batch, vocab_size)``, float32
        """
        score = partial(self.network.score, hidden_states)
        return self._pace.run("score", len(hidden_states), score) if self._pace else score()

    @torch.inference_mode()
    def phrase_queries(self, hidden_states: Tensor) -> tuple[Tensor, Tensor]:
        """The halves of the prefix vector that meet start and end vectors (CoG, eq. 1 and 2).

        *Shape:* ``(batch, dim)`` to twice ``(batch, dim / 2)``, float32
        """
        queries = hidden_states
        if self._projection is not None:
            queries = hidden_states @ self._projection.T
        start, end = queries.chunk(2, dim=1)
        return start, end
