"""The blocks of a Llama-like model: packed tokens go in, hidden states come out.

The same sums as transformers' modules in fewer and larger products: query, key and value are one,
gate and up are one, and nothing else than the tensors is looked up on the way. A pass of one token
through 30 blocks spends a fifth of its time outside the products otherwise.
"""

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaModel

from cog.model.cache import Layout, PrefixCache, packed_attention
from cog.model.matrices import Matrix


@dataclass(frozen=True, slots=True)
class _Block:
    attention_norm: Tensor
    query_key_value: Matrix
    output: Matrix
    mlp_norm: Tensor
    gate_up: Matrix
    down: Matrix


class LlamaBlocks:
    """A stack of Llama's blocks.

    :param body: The model without its head. Its layers are taken out of it.
    :param precision: Of the matrices.
    """

    def __init__(self, body: LlamaModel, precision: str) -> None:
        config = body.config
        self._num_heads = config.num_attention_heads
        self._num_key_heads = config.num_key_value_heads or config.num_attention_heads
        self._epsilon = config.rms_norm_eps
        self._rotary = body.rotary_emb
        self._norm = body.norm.weight
        layers = list(body.layers)
        body.layers = nn.ModuleList()  # so that no weight is held twice
        self._blocks = []
        while layers:
            self._blocks.append(_read(cast(LlamaDecoderLayer, layers.pop(0)), precision))

    @classmethod
    def take(cls, model: PreTrainedModel, precision: str) -> "LlamaBlocks | None":
        """Take the blocks out of a model.

        :param model: The causal model in float32, where it will run.
        :param precision: ``float32``, ``bfloat16`` or ``int8``.
        :returns: Its blocks; None if they are of another kind, and then it is left as it is.
        """
        body = model.base_model
        is_plain = type(body) is LlamaModel and body.config.hidden_act == "silu"
        return cls(cast(LlamaModel, body), precision) if is_plain else None

    def __call__(self, embeddings: Tensor, layout: Layout, cache: PrefixCache) -> Tensor:
        """Read packed tokens.

        :param embeddings: *Shape:* ``(num_tokens, dim)``
        :param layout: Where the tokens belong.
        :param cache: Their prefixes, which grow.
        :returns: Hidden states. *Shape:* ``(num_tokens, dim)``
        """
        states = embeddings
        # (1, num_tokens, head_dim)
        cosines, sines = self._rotary(states.unsqueeze(0), layout.positions.unsqueeze(0))
        for number, block in enumerate(self._blocks):
            normed = self._normalise(states, block.attention_norm)
            mixed = self._attend(
                block.query_key_value(normed), (cosines, sines), layout, cache, number
            )
            states = states + block.output(mixed)
            gate, up = block.gate_up(self._normalise(states, block.mlp_norm)).chunk(2, dim=1)
            states = states + block.down(functional.silu(gate) * up)
        return self._normalise(states, self._norm)

    def _normalise(self, states: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(states, weight.shape, weight, self._epsilon)

    def _attend(
        self,
        joined: Tensor,
        rotation: tuple[Tensor, Tensor],
        layout: Layout,
        cache: PrefixCache,
        number: int,
    ) -> Tensor:
        # joined: (num_tokens, (num_heads + 2 num_key_heads) head_dim)
        num_turned = self._num_heads + self._num_key_heads
        heads = joined.view(len(joined), num_turned + self._num_key_heads, -1).transpose(0, 1)
        turned, values = heads[:num_turned], heads[num_turned:]
        first, second = turned.chunk(2, dim=2)
        cosines, sines = rotation
        turned = turned * cosines + torch.cat([-second, first], dim=2) * sines
        queries, keys = turned[: self._num_heads], turned[self._num_heads :]
        all_keys, all_values = cache.update(keys.unsqueeze(0), values.unsqueeze(0), number)
        mixed, _ = packed_attention(
            None, queries.unsqueeze(0), all_keys, all_values, None, layout=layout
        )
        return mixed.reshape(len(joined), -1)


def _read(layer: LlamaDecoderLayer, precision: str) -> _Block:
    attention, mlp = layer.self_attn, layer.mlp

    def join(*layers: nn.Linear) -> Matrix:
        return Matrix.join([Matrix.read(each, precision) for each in layers]).pack()

    return _Block(
        attention_norm=layer.input_layernorm.weight,
        query_key_value=join(attention.q_proj, attention.k_proj, attention.v_proj),
        output=join(attention.o_proj),
        mlp_norm=layer.post_attention_layernorm.weight,
        gate_up=join(mlp.gate_proj, mlp.up_proj),
        down=join(mlp.down_proj),
    )
