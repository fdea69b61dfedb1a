"""Models in the form of transformers: a base folder goes in, modules come out, plain or wrapped.

What trains, what is hooked to modules, and every base model of a kind that the project does not
read by itself. To import this takes seconds, so it is imported where it is needed.
"""

from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AutoModel, AutoModelForCausalLM, PreTrainedModel
from transformers.pytorch_utils import Conv1D
from transformers.utils import logging

from cog.errors import CheckpointError
from cog.model.cache import ATTENTION_NAME, Layout, PrefixCache, packed_attention
from cog.model.matrices import CPU, Matrix
from cog.model.weights import Weights, apply_weights
from cog.records import FLOAT32

TRIED_TOKENS = 8
MAX_DIFFERENCE = 0.02  # of hidden states, in shares of the largest value


class CausalModules:
    """A causal language model in float32, changed in place: its attention becomes the packed one.

    One that attends otherwise than by plain causal attention is a ``CheckpointError``.

    ``keeps_modules`` says whether its own modules run, for what is hooked to them or learns through
    them; slower. The precision is that of its linear layers.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        precision: str = FLOAT32,
        device: torch.device = CPU,
        keeps_modules: bool = False,
    ) -> None:
        AttentionInterface.register(ATTENTION_NAME, packed_attention)
        model.requires_grad_(False).train(mode=False)
        self.model = model
        self.precision, self.device = precision, device
        self._body: nn.Module = model.base_model
        self._embed: nn.Embedding = model.get_input_embeddings()  # type: ignore[assignment]
        self.vocab_size = self._embed.num_embeddings
        model.to(device)  # type: ignore[arg-type]
        self._replace_attention()
        self._head: nn.Module = model.get_output_embeddings()  # type: ignore[no-untyped-call]
        if not keeps_modules:
            self._head = _read_layer(cast(nn.Linear, self._head), FLOAT32).pack()
            model.set_output_embeddings(self._head)  # type: ignore[no-untyped-call]
        if not keeps_modules or precision != FLOAT32:
            _take_layers(self._body, precision, packs=not keeps_modules)

    @torch.no_grad()
    def _replace_attention(self) -> None:
        # a few tokens tell whether the model attends as the packed attention does: others cap
        # scores, add to them by distance, or look at fewer tokens
        try:
            self.max_positions = _count_positions(self.model)
            ids = torch.arange(min(TRIED_TOKENS, self.max_positions), device=self.device)
            ids %= self.vocab_size
            wanted = self._body(input_ids=ids[None], use_cache=False).last_hidden_state[0]
            self.model.set_attn_implementation(ATTENTION_NAME)
            cache = PrefixCache(batch=1, capacity=len(ids), device=self.device)
            found = self.read(ids, cache.plan([len(ids)]), cache)
        except (AttributeError, TypeError, ValueError) as error:
            raise _refuse_attention(str(error)) from error
        difference = float((found - wanted).abs().max() / wanted.abs().max().clamp_min(1e-9))
        if difference > MAX_DIFFERENCE:
            raise _refuse_attention(f"hidden states that differ by {100 * difference:.0f} %")

    def read(self, token_ids: Tensor, layout: Layout, cache: PrefixCache) -> Tensor:
        """Read packed tokens; as :meth:`cog.model.llama.LlamaNetwork.read`."""
        states: Tensor = self._body(
            inputs_embeds=self._embed(token_ids).unsqueeze(0),
            position_ids=layout.positions.unsqueeze(0),
            cache=cache,
            use_cache=True,
            layout=layout,
        ).last_hidden_state[0]
        return states

    def score(self, states: Tensor) -> Tensor:
        """Scores of the vocabulary; as :meth:`cog.model.llama.LlamaNetwork.score`."""
        logits: Tensor = self._head(states)
        return logits


def _count_positions(model: PreTrainedModel) -> int:
    # tokens that it can read; of a sliding window, no more than it holds
    config = model.config
    window = getattr(config, "sliding_window", None) or config.max_position_embeddings
    return int(min(config.max_position_embeddings, window))


def _refuse_attention(found: str) -> CheckpointError:
    return CheckpointError(
        "the prefix encoder must have plain causal attention, as GPT-2, Llama and Qwen have",
        found=found,
        run="name another prefix encoder in the model's config.yaml",
    )


class TextModules:
    """Any bidirectional encoder, in float32; changed in place."""

    def __init__(self, model: PreTrainedModel, *, device: torch.device = CPU) -> None:
        model.requires_grad_(False).train(mode=False)
        model.to(device)  # type: ignore[arg-type]
        self._model = model
        self.dim, self.device = int(model.config.hidden_size), device
        # None: positions are told by distance
        self.max_positions: int | None = getattr(model.config, "max_position_embeddings", None)

    def __call__(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Read texts; as :class:`cog.model.bert.BertNetwork`."""
        states: Tensor = self._model(input_ids=ids, attention_mask=mask).last_hidden_state
        return states


def load_trained(base: Path, weights: Weights, *, scale: float) -> PreTrainedModel:
    """Load a causal base model and put its trained weights into it."""
    causal = load_causal(base)
    apply_weights(
        causal,
        weights,
        scale=scale,
        may_lack=tied_names(causal),
        transposed=find_transposed(causal),
    )
    return causal


def hush_transformers() -> None:
    """Silence bars for loads of a second, and reports of poolers that are never used."""
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]


def load_bidirectional(base: Path, **overrides: float) -> PreTrainedModel:
    """Load a bidirectional base model in float32; values of its config may be changed."""
    return _load_base(AutoModel, base, overrides)


def load_causal(base: Path, **overrides: float) -> PreTrainedModel:
    """Load a causal base model in float32; values of its config may be changed."""
    return _load_base(AutoModelForCausalLM, base, overrides)


def _load_base(kind: Any, base: Path, overrides: dict[str, float]) -> PreTrainedModel:  # noqa: ANN401
    hush_transformers()
    try:  # a base comes from anybody: neither pickles, which run code, nor code of its own
        loaded: tuple[PreTrainedModel, dict[str, Any]] = kind.from_pretrained(
            base,
            output_loading_info=True,
            dtype=torch.float32,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            **overrides,
        )
    except Exception as error:  # what a bad file makes transformers raise has no class in common
        raise _refuse_base(base, " ".join(str(error).split())[:200] or repr(error)) from error
    model, info = loaded
    # it would fill them with random numbers
    lacking = sorted(name for name in info["missing_keys"] if not name.startswith("pooler."))
    if lacking:
        raise _refuse_base(base, f"no {lacking[0]}")
    return model


def _refuse_base(base: Path, found: str) -> CheckpointError:
    return CheckpointError(
        f"the base model {base} must be safetensors of a kind that transformers knows",
        found=found,
        run="save it again with save_pretrained of transformers, or name another base",
    )


def tied_names(network: PreTrainedModel) -> tuple[str, ...]:
    """Tensors that whole trained weights may lack, since they are tied to others."""
    head = network.get_output_embeddings()  # type: ignore[no-untyped-call]
    if head is None or head.weight is not network.get_input_embeddings().weight:
        return ()
    return tuple(f"{name}.weight" for name, each in network.named_modules() if each is head)


def find_transposed(network: nn.Module) -> frozenset[str]:
    """Matrices that are stored transposed, as GPT-2 does."""
    modules = network.named_modules()
    return frozenset(f"{name}.weight" for name, each in modules if isinstance(each, Conv1D))


def _read_layer(layer: "nn.Linear | Conv1D", precision: str) -> Matrix:
    weight = layer.weight.detach()
    if isinstance(layer, Conv1D):
        weight = weight.T.contiguous()
    bias = None if layer.bias is None else cast(Tensor, layer.bias).detach()
    return Matrix.read(weight, bias, precision)


def _take_layers(model: nn.Module, precision: str, *, packs: bool) -> None:
    # matrices in the place of the linear layers
    for module in list(model.modules()):
        for name, layer in module.named_children():
            if isinstance(layer, nn.Linear | Conv1D):
                matrix = _read_layer(layer, precision)
                setattr(module, name, matrix.pack() if packs else matrix)
