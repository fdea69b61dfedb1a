"""BERT's network: a base model's tensors go in; hidden states of padded pieces come out.

The same sums in the same order as transformers' modules, so that the vectors of an index are the
same bytes with either.
"""

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from cog.model.base_form import BaseForm
from cog.model.weights import TrainedTensors

WORDS = "embeddings.word_embeddings.weight"
NORM = "embeddings.LayerNorm.weight"

Layer = tuple[Tensor, Tensor]  # weight and bias


@dataclass(frozen=True, slots=True)
class _Block:
    query: Layer
    key: Layer
    value: Layer
    output: Layer
    attention_norm: Layer
    up: Layer
    down: Layer
    norm: Layer


class BertNetwork:
    """A bidirectional encoder of BERT's kind, which :func:`is_bert` knows."""

    def __init__(self, form: BaseForm, tensors: TrainedTensors) -> None:
        config = form.config
        self.dim: int = config["hidden_size"]
        self._num_heads: int = config["num_attention_heads"]
        self._epsilon = float(config.get("layer_norm_eps", 1e-12))

        def read(name: str) -> Layer:
            return tensors.get(f"{name}.weight"), tensors.get(f"{name}.bias")

        self._words = tensors.get(WORDS)  # (num_pieces, dim)
        self._kind = tensors.get("embeddings.token_type_embeddings.weight")[0]  # (dim,)
        self._positions = tensors.get("embeddings.position_embeddings.weight")
        self.max_positions: int | None = len(self._positions)
        self.device = self._words.device
        self._norm = read("embeddings.LayerNorm")
        blocks = [f"encoder.layer.{n}." for n in range(config["num_hidden_layers"])]
        self._blocks = [
            _Block(
                query=read(f"{block}attention.self.query"),
                key=read(f"{block}attention.self.key"),
                value=read(f"{block}attention.self.value"),
                output=read(f"{block}attention.output.dense"),
                attention_norm=read(f"{block}attention.output.LayerNorm"),
                up=read(f"{block}intermediate.dense"),
                down=read(f"{block}output.dense"),
                norm=read(f"{block}output.LayerNorm"),
            )
            for block in blocks
        ]

    def __call__(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Read texts, with a mask of 1 where there is a piece.

        *Shape:* twice ``(batch, num_pieces)`` to ``(batch, num_pieces, dim)``
        """
        states = functional.embedding(ids, self._words) + self._kind
        states = self._normalise(states + self._positions[: ids.shape[1]], self._norm)
        seen = None if bool(mask.all()) else mask.bool()[:, None, None, :]
        for block in self._blocks:
            mixed = functional.linear(self._attend(states, block, seen), *block.output)
            states = self._normalise(mixed + states, block.attention_norm)
            raised = functional.gelu(functional.linear(states, *block.up))
            states = self._normalise(functional.linear(raised, *block.down) + states, block.norm)
        return states

    def _attend(self, states: Tensor, block: _Block, seen: Tensor | None) -> Tensor:
        shape = (*states.shape[:2], self._num_heads, -1)
        query, key, value = (
            functional.linear(states, *layer).view(shape).transpose(1, 2)
            for layer in (block.query, block.key, block.value)
        )  # (batch, num_heads, num_pieces, head_dim) each
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        return mixed.transpose(1, 2).reshape(states.shape)

    def _normalise(self, states: Tensor, norm: Layer) -> Tensor:
        return functional.layer_norm(states, (self.dim,), *norm, self._epsilon)


def is_bert(form: BaseForm) -> bool:
    """Whether a base model is of the kind that :class:`BertNetwork` reads."""
    config = form.config
    return (
        config.get("model_type") == "bert"
        and config.get("hidden_act", "gelu") == "gelu"
        and config.get("position_embedding_type", "absolute") == "absolute"
        and not config.get("is_decoder", False)
        and form.has_sizes("hidden_size", "num_attention_heads", "num_hidden_layers")
        and WORDS in form.tensors
        and NORM in form.tensors  # old files call it gamma
    )
