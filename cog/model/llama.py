"""Llama's network: tensors of a base model go in; hidden states and logits of tokens come out.

The same sums as transformers' modules in fewer and larger products: query, key and value are one,
gate and up are one, and nothing else than the tensors is looked up on the way. A pass of one token
through 30 blocks spends a fifth of its time outside the products otherwise.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from cog.model.base_form import BaseForm
from cog.model.cache import Layout, PrefixCache, packed_attention
from cog.model.matrices import Matrix
from cog.model.threads import start_single_threads
from cog.model.weights import TrainedTensors

EMBEDDINGS = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
QUERIES = "model.layers.0.self_attn.q_proj.weight"
SIZES = ("hidden_size", "num_attention_heads", "num_hidden_layers", "max_position_embeddings")
DEFAULT = "default"
STILL_ROTATIONS = (DEFAULT, "linear", "llama3", "yarn")  # that do not change with the length


@dataclass(frozen=True, slots=True)
class _Block:
    attention_norm: Tensor
    query_key_value: Matrix
    output: Matrix
    mlp_norm: Tensor
    gate_up: Matrix
    down: Matrix


class LlamaNetwork:
    """A causal language model of Llama's kind, which :func:`is_llama` knows.

    Tensors are as trained, where they shall lie; the precision is that of the matrices of its
    blocks.
    """

    def __init__(self, form: BaseForm, tensors: TrainedTensors, precision: str) -> None:
        config = form.config
        self.precision = precision
        self.max_positions: int = config["max_position_embeddings"]
        self._num_heads: int = config["num_attention_heads"]
        self._num_key_heads = int(config.get("num_key_value_heads") or self._num_heads)
        self._epsilon = float(config.get("rms_norm_eps", 1e-6))
        self._norm = tensors.get("model.norm.weight")
        self._embeddings = tensors.get(EMBEDDINGS)  # (vocab_size, dim)
        self.vocab_size, self.device = len(self._embeddings), self._embeddings.device
        frequencies, self._rotation_scale = _get_frequencies(form)
        self._frequencies = frequencies.to(self.device)  # (head_dim / 2,)

        def read(number: int, *names: str) -> Matrix:
            parts = [f"model.layers.{number}.{name}" for name in names]
            matrices = [
                Matrix.read(
                    tensors.get(f"{part}.weight"),
                    tensors.get(f"{part}.bias") if f"{part}.bias" in form.tensors else None,
                    precision,
                )
                for part in parts
            ]
            return Matrix.join(matrices).pack()

        def read_block(n: int) -> _Block:
            return _Block(
                attention_norm=tensors.get(f"model.layers.{n}.input_layernorm.weight"),
                query_key_value=read(n, "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
                output=read(n, "self_attn.o_proj"),
                mlp_norm=tensors.get(f"model.layers.{n}.post_attention_layernorm.weight"),
                gate_up=read(n, "mlp.gate_proj", "mlp.up_proj"),
                down=read(n, "mlp.down_proj"),
            )

        # side by side, a core each: laying out a matrix is too little work to be shared
        with start_single_threads(torch.get_num_threads(), "blocks") as pool:
            self._blocks = list(pool.map(read_block, range(config["num_hidden_layers"])))
        head = self._embeddings if _is_tied(config) else tensors.get(HEAD)
        self._head = Matrix.read(head, None).pack()  # float32 in any precision

    def read(self, token_ids: Tensor, layout: Layout, cache: PrefixCache) -> Tensor:
        """Read packed tokens, by which their prefixes in the cache grow.

        *Shape:* ``(num_tokens,)`` to ``(num_tokens, dim)``
        """
        states = functional.embedding(token_ids, self._embeddings)  # (num_tokens, dim)
        turns = layout.positions.unsqueeze(1).float() * self._frequencies
        turns = torch.cat([turns, turns], dim=1)  # (num_tokens, head_dim)
        rotation = turns.cos() * self._rotation_scale, turns.sin() * self._rotation_scale
        for number, block in enumerate(self._blocks):
            normed = self._normalise(states, block.attention_norm)
            mixed = self._attend(block.query_key_value(normed), rotation, layout, cache, number)
            states = states + block.output(mixed)
            gate, up = block.gate_up(self._normalise(states, block.mlp_norm)).chunk(2, dim=1)
            states = states + block.down(functional.silu(gate) * up)
        return self._normalise(states, self._norm)

    def score(self, states: Tensor) -> Tensor:
        """Scores of the vocabulary. *Shape:* ``(batch, dim)`` to ``(batch, vocab_size)``."""
        logits: Tensor = self._head(states)
        return logits

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


def is_llama(form: BaseForm) -> bool:
    """Whether a base model is of the kind that :class:`LlamaNetwork` reads."""
    config = form.config
    return (
        config.get("model_type") == "llama"
        and form.has_sizes(*SIZES)
        and config.get("hidden_act", "silu") == "silu"
        and _get_rotation(config)["rope_type"] in STILL_ROTATIONS
        and EMBEDDINGS in form.tensors
        and len(form.tensors.get(QUERIES, ()))
        == config["num_attention_heads"] * _get_head_dim(config)
        and (_is_tied(config) or HEAD in form.tensors)
    )


def list_tied(form: BaseForm) -> tuple[str, ...]:
    """Name the tensors that whole trained weights may lack, since they are tied to others."""
    return (HEAD,) if _is_tied(form.config) else ()


def _is_tied(config: Mapping[str, Any]) -> bool:
    return bool(config.get("tie_word_embeddings", False))


def _get_head_dim(config: Mapping[str, Any]) -> int:
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])


def _get_rotation(config: Mapping[str, Any]) -> dict[str, Any]:
    # how frequencies are stated, today and before transformers 5
    stated = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(stated, Mapping):
        return {"rope_type": str(stated)}
    kind = stated.get("type", DEFAULT)
    return {"rope_type": kind, "rope_theta": config.get("rope_theta", 10000.0), **stated}


def _get_frequencies(form: BaseForm) -> tuple[Tensor, float]:
    # of rotations (Su et al. 2021), and what sines and cosines are multiplied with
    config, rotation = form.config, _get_rotation(form.config)
    if rotation["rope_type"] != DEFAULT:  # stretched ones are worth an import
        from transformers import AutoConfig
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

        stated = AutoConfig.from_pretrained(form.folder, local_files_only=True)
        frequencies, scale = ROPE_INIT_FUNCTIONS[rotation["rope_type"]](stated)
        return frequencies, float(scale)
    dim = _get_head_dim(config)
    shares = torch.arange(0, dim, 2, dtype=torch.float32) / dim
    return 1.0 / (rotation["rope_theta"] ** shares), 1.0
