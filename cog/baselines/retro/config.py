"""What an adapter is made of: params.yaml and a model's sizes go in, checked sizes come out."""

from dataclasses import asdict, dataclass

from cog.errors import ParamsError
from cog.model.load import CogModel
from cog.params import RetroParams

POSITIVE = (
    *("chunk_tokens", "num_neighbours", "neighbour_tokens", "first_cross_layer"),
    *("cross_layer_step", "encoder_layers", "windows_per_batch", "accumulation_steps"),
    *("learning_rate", "gate_rate", "max_steps", "max_gradient_norm"),
    *("validation_steps", "checkpoint_steps"),
)
SHARES = ("warmup_share", "final_rate_share", "held_out_share")
PRECISIONS = ("auto", "float32", "bfloat16")


@dataclass(frozen=True, slots=True)
class RetroConfig:
    """Sizes of the adapter.

    :param dim: Width of the prefix encoder.
    :param num_heads: Number of attention heads, of the cross-attention and of the encoder.
    :param chunk_tokens: Number of tokens after which neighbours are retrieved anew.
    :param num_neighbours: Number of neighbours of a chunk.
    :param neighbour_tokens: Number of tokens of a neighbour, at most.
    :param continuation_tokens: Number of tokens of what follows it, at most.
    :param cross_layers: Layers of the prefix encoder after which neighbours are attended to, from
        0.
    :param encoder_layers: Number of layers of the encoder of neighbours.
    """

    dim: int
    num_heads: int
    chunk_tokens: int
    num_neighbours: int
    neighbour_tokens: int
    continuation_tokens: int
    cross_layers: tuple[int, ...]
    encoder_layers: int

    @property
    def max_neighbour_tokens(self) -> int:
        """Number of tokens of a neighbour with its continuation, at most.

        :returns: The count.
        """
        return self.neighbour_tokens + self.continuation_tokens


def make_config(model: CogModel, params: RetroParams) -> RetroConfig:
    """Fit the sizes of params.yaml to a model.

    :param model: The model.
    :param params: Section ``retro``.
    :returns: The sizes.
    :raises ParamsError: If the model has fewer layers than the first that attends.
    """
    base = model.prefix_encoder.model.config
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


def check_params(params: RetroParams) -> None:
    """Refuse settings that no run can use.

    :param params: Section ``retro``.
    :raises ParamsError: If one is out of range.
    """
    for name, value in asdict(params).items():
        if not isinstance(value, int | float):
            continue
        if name in POSITIVE and not value > 0:  # not what is no number, either
            raise ParamsError(f"retro.{name} must be above 0", found=str(value), about=name)
        if not value >= 0:
            raise ParamsError(f"retro.{name} must be 0 or more", found=str(value), about=name)
        if name in SHARES and value > 1:
            raise ParamsError(f"retro.{name} must be at most 1", found=str(value), about=name)
    if params.held_out_share == 1:
        raise ParamsError(
            "retro.held_out_share must be below 1, so that something is learnt from",
            found=str(params.held_out_share),
            about="held_out_share",
        )
    if params.window_tokens <= params.chunk_tokens:
        raise ParamsError(
            "retro.window_tokens must be above retro.chunk_tokens, so that a token sees neighbours",
            found=f"{params.window_tokens} and {params.chunk_tokens}",
            about="window_tokens",
        )
    if params.precision not in PRECISIONS:
        raise ParamsError(
            f"retro.precision must be one of {', '.join(PRECISIONS)}",
            found=repr(params.precision),
            about="precision",
        )
