"""What an adapter is made of: params.yaml and a model's sizes go in, checked sizes come out."""

from dataclasses import dataclass

from cog.errors import ParamsError
from cog.model.load import CogModel
from cog.params import RetroParams
from cog.reading import Count, Natural


@dataclass(frozen=True, slots=True)
class RetroConfig:
    """Sizes of the adapter."""

    dim: Count
    num_heads: Count  # of the cross-attention and of the encoder
    chunk_tokens: Count
    num_neighbours: Count
    neighbour_tokens: Count
    continuation_tokens: Natural
    cross_layers: tuple[Natural, ...]  # of the prefix encoder, from 0: neighbours are seen after
    encoder_layers: Count

    @property
    def max_neighbour_tokens(self) -> int:
        """Number of tokens of a neighbour with its continuation, at most."""
        return self.neighbour_tokens + self.continuation_tokens


def make_config(model: CogModel, params: RetroParams) -> RetroConfig:
    """Fit the sizes of params.yaml to a model; refused is one that has too few layers."""
    base = model.prefix_encoder.get_modules().config
    num_layers = int(base.num_hidden_layers)
    layers = tuple(range(params.first_cross_layer - 1, num_layers, params.cross_layer_step))
    if not layers:
        raise ParamsError(
            "retro.first_cross_layer must be a layer of the prefix encoder",
            found=f"{params.first_cross_layer} of {num_layers} layers",
            about="first_cross_layer",
        )
    return RetroConfig(
        dim=int(base.hidden_size),
        num_heads=int(base.num_attention_heads),
        chunk_tokens=params.chunk_tokens,
        num_neighbours=params.num_neighbours,
        neighbour_tokens=params.neighbour_tokens,
        continuation_tokens=params.continuation_tokens,
        cross_layers=layers,
        encoder_layers=params.encoder_layers,
    )
