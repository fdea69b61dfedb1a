"""The prefix encoder.

Token ids go in, prefix vectors and token logits come out, with a cache in between.
"""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel

from cog.model.cache import ATTENTION_NAME, PrefixCache, packed_attention
from cog.model.llama_blocks import LlamaBlocks
from cog.model.matrices import CPU, Matrix, take_layers
from cog.records import FLOAT32

PREFILL_TOKENS = 512  # tokens of one prefix encoded in one pass; bounds the memory of long prefixes


class PrefixEncoder:
    """A causal language model read at its last token (CoG, section 3.1).

    Differs from the paper where the weights hold ``qproj``: the query of phrases is then ``W_q h``
    instead of ``h``.

    :param model: Any causal model of transformers; its attention is replaced by the packed one, and
        blocks like Llama's by joined ones. In float32, and changed in place.
    :param query_projection: ``W_q`` of *Shape:* ``(dim, dim)``; None for the identity.
    :param begin_token_id: Token put before every prefix; None for none.
    :param precision: Of its linear layers: ``float32``, ``bfloat16`` or ``int8``.
    :param device: Where it runs.
    :param keeps_modules: Whether the model's own modules run, for what is hooked to them or learns
        through them; slower.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        query_projection: Tensor | None,
        begin_token_id: int | None,
        precision: str = FLOAT32,
        device: torch.device = CPU,
        keeps_modules: bool = False,
    ) -> None:
        AttentionInterface.register(ATTENTION_NAME, packed_attention)
        model.requires_grad_(False).train(mode=False)
        model.set_attn_implementation(ATTENTION_NAME)
        self.model = model
        self.begin_token_id = begin_token_id
        self._body: nn.Module = model.base_model
        self._embed: nn.Embedding = model.get_input_embeddings()  # type: ignore[assignment]
        model.to(device)  # type: ignore[arg-type]
        self._blocks = None if keeps_modules else LlamaBlocks.take(model, precision)
        self._head: nn.Module = model.get_output_embeddings()  # type: ignore[no-untyped-call]
        if not keeps_modules:
            self._head = Matrix.read(cast(nn.Linear, self._head)).pack()  # float32 in any precision
            model.set_output_embeddings(self._head)  # type: ignore[no-untyped-call]
        if not keeps_modules or precision != FLOAT32:
            take_layers(self._body, precision, packs=not keeps_modules)
        self.precision = precision
        self._projection = None if query_projection is None else query_projection.to(device)

    @property
    def device(self) -> torch.device:
        """Where the weights lie."""
        return self._embed.weight.device

    @property
    def vocab_size(self) -> int:
        """Number of tokens of the vocabulary."""
        return self._embed.num_embeddings

    @property
    def max_positions(self) -> int:
        """Number of tokens that the model can read."""
        return int(self.model.config.max_position_embeddings)

    def new_cache(self, *, batch: int, capacity: int) -> PrefixCache:
        """An empty cache.

        :param batch: Number of prefixes.
        :param capacity: Number of positions to begin with.
        :returns: The cache.
        """
        return PrefixCache(batch=batch, capacity=capacity, device=self.device)

    @torch.inference_mode()
    def append(self, cache: PrefixCache, token_ids: Sequence[Sequence[int]]) -> Tensor:
        """Append tokens to the prefixes of a cache in one pass.

        :param cache: The cache; its prefixes grow.
        :param token_ids: New tokens per prefix; may be empty for some, not for all.
        :returns: Hidden states of the new tokens, packed prefix by prefix. *Shape:* ``(num_tokens,
            dim)``
        """
        layout = cache.plan([len(ids) for ids in token_ids])
        packed = torch.tensor([i for ids in token_ids for i in ids], device=self.device)
        embeddings = self._embed(packed)  # (num_tokens, dim)
        states: Tensor
        if self._blocks is not None:
            states = self._blocks(embeddings, layout, cache)
        else:
            states = self._body(
                inputs_embeds=embeddings.unsqueeze(0),
                position_ids=layout.positions.unsqueeze(0),
                cache=cache,
                use_cache=True,
                layout=layout,
            ).last_hidden_state[0]
        cache.commit()
        return states

    def append_last(self, cache: PrefixCache, token_ids: Sequence[Sequence[int]]) -> Tensor:
        """Append tokens and return the hidden state at the last token of each prefix.

        Long prefixes are read block by block.

        :param cache: The cache; its prefixes grow.
        :param token_ids: New tokens per prefix; may be empty for some, not for all.
        :returns: Hidden states of the prefixes that got tokens, in order. *Shape:* ``(num_rows,
            dim)``
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

        :param hidden_states: *Shape:* ``(batch, dim)``
        :returns: *Shape:* ``(batch, vocab_size)``, float32
        """
        logits: Tensor = self._head(hidden_states)
        return logits

    @torch.inference_mode()
    def phrase_queries(self, hidden_states: Tensor) -> tuple[Tensor, Tensor]:
        """The halves of the prefix vector that meet start and end vectors (CoG, eq. 1 and 2).

        :param hidden_states: *Shape:* ``(batch, dim)``
        :returns: Start and end query, each of *Shape:* ``(batch, dim / 2)``, float32
        """
        queries = hidden_states
        if self._projection is not None:
            queries = hidden_states @ self._projection.T
        start, end = queries.chunk(2, dim=1)
        return start, end
