"""Loading the fixed trained model: a model folder goes in, the encoders ready to run come out."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoModel, AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging

from cog.errors import CheckpointError
from cog.model.base import get_base_folder
from cog.model.config import ModelConfig, load_config
from cog.model.fingerprint import fingerprint_model
from cog.model.matrices import choose_precision
from cog.model.phrase_encoder import PhraseEncoder
from cog.model.prefix_encoder import PrefixEncoder
from cog.model.retriever import MeanRetriever
from cog.model.threads import describe_numerics, pin_threads
from cog.model.weights import Weights, apply_weights, load_weights, select_weights
from cog.model.words import WordSplitter, load_tokenizer
from cog.records import FLOAT32


@dataclass(frozen=True, slots=True)
class IndexModel:
    """What an index is built with.

    :param fingerprint: Digest of the model.
    :param config: Its config, with the limits of chunks and phrases.
    :param splitter: Splits texts into words.
    :param phrase_encoder: Encodes the words of chunks.
    :param retriever: Encodes chunks and prefixes for retrieval.
    """

    fingerprint: str
    config: ModelConfig
    splitter: WordSplitter
    phrase_encoder: PhraseEncoder
    retriever: MeanRetriever

    @property
    def numerics(self) -> str:
        """What decides the last bits of a vector, besides the model and the text.

        Gives device, instruction set or card, and torch's version.
        """
        return describe_numerics(self.phrase_encoder.device)

    def pin_threads(self) -> AbstractContextManager[int]:
        """Let every operation run on one thread, so that batches do not change vectors.

        Gives a context manager that gives the number of threads that may encode at once.
        """
        return pin_threads(self.phrase_encoder.device)


@dataclass(frozen=True, slots=True)
class CogModel:
    """What text is generated with.

    :param fingerprint: Digest of the model.
    :param config: Its config, with the limits of chunks and phrases.
    :param splitter: Splits texts into words.
    :param retriever: Encodes prefixes for retrieval.
    :param prefix_encoder: Encodes prefixes for the next choice.
    """

    fingerprint: str
    config: ModelConfig
    splitter: WordSplitter
    retriever: MeanRetriever
    prefix_encoder: PrefixEncoder


def load_splitter(folder: Path) -> WordSplitter:
    """Load only what splits texts into tokens and words."""
    config = load_config(folder)
    return WordSplitter.from_folder(get_base_folder(config.prefix_base, model_folder=folder))


def load_index_model(folder: Path, *, device: str = "cpu") -> IndexModel:
    """Load what building an index needs.

    :param folder: The model folder.
    :param device: ``cpu``, ``cuda`` or ``auto``.
    :returns: The model's index side.
    """
    config = load_config(folder)
    weights = load_weights(folder, config)
    base = get_base_folder(config.phrase_base, model_folder=folder)
    phrase_encoder = PhraseEncoder(
        load_bidirectional(base),
        load_tokenizer(base),
        weights,
        max_pieces=config.max_pieces,
        lora_scale=config.lora_scale,
    )
    phrase_encoder.to(resolve_device(device))
    return IndexModel(
        fingerprint=fingerprint_model(folder),
        config=config,
        splitter=load_splitter(folder),
        phrase_encoder=phrase_encoder,
        retriever=_load_retriever(folder, config, device=device),
    )


def load_model(
    folder: Path,
    *,
    device: str = "cpu",
    precision: str = FLOAT32,
    keeps_modules: bool = False,
) -> CogModel:
    """Load what generating text needs.

    :param folder: The model folder.
    :param device: ``cpu``, ``cuda`` or ``auto``.
    :param precision: Of the prefix encoder: ``float32``, ``bfloat16``, ``int8`` or ``auto``.
    :param keeps_modules: Whether the prefix encoder runs the modules of its base, for what is
        hooked to them; slower.
    :returns: The model's generating side.
    """
    config = load_config(folder)
    target = resolve_device(device)
    chosen = choose_precision(precision, target)  # refused before anything is read
    base = get_base_folder(config.prefix_base, model_folder=folder)
    weights = load_weights(folder, config)
    prefix_encoder = PrefixEncoder(
        _load_network(base, config, weights),
        query_projection=weights.get("qproj.weight"),
        begin_token_id=config.begin_token_id,
        precision=chosen,
        device=target,
        keeps_modules=keeps_modules,
    )
    return CogModel(
        fingerprint=fingerprint_model(folder),
        config=config,
        splitter=WordSplitter.from_folder(base),
        retriever=_load_retriever(folder, config, device=device),
        prefix_encoder=prefix_encoder,
    )


def load_network(folder: Path) -> PreTrainedModel:
    """Load the prefix encoder's network, as trained, in the form of transformers.

    :param folder: The model folder.
    :returns: The causal model, in float32.
    """
    config = load_config(folder)
    base = get_base_folder(config.prefix_base, model_folder=folder)
    return _load_network(base, config, load_weights(folder, config))


def resolve_device(device: str) -> torch.device:
    """Turn a device name into a device.

    :param device: ``cpu``, ``cuda`` or ``auto`` (a GPU if there is one).
    :returns: The device.
    :raises CheckpointError: If a GPU is asked for and there is none.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise CheckpointError(
            "--device cuda needs a GPU", found="no GPU that torch can use", run="use --device cpu"
        )
    return torch.device(device)


def _load_retriever(folder: Path, config: ModelConfig, *, device: str) -> MeanRetriever:
    base = get_base_folder(config.retriever_base, model_folder=folder)
    retriever = MeanRetriever(
        load_bidirectional(base), load_tokenizer(base), max_pieces=config.max_pieces
    )
    retriever.to(resolve_device(device))
    return retriever


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
        model: PreTrainedModel = kind.from_pretrained(
            base,
            dtype=torch.float32,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            **overrides,
        )
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise CheckpointError(
            f"the base model {base} must be safetensors of a kind that transformers knows",
            found=(str(error).strip() or type(error).__name__).splitlines()[0],
            run="save it again with save_pretrained of transformers, or name another base",
            about=str(base),
        ) from error
    return model


def tied_names(causal: PreTrainedModel) -> tuple[str, ...]:
    """Tensors that whole trained weights may lack, since they are tied to others."""
    head = causal.get_output_embeddings()  # type: ignore[no-untyped-call]
    names = causal.state_dict(keep_vars=True).items()
    is_tied = head.weight is causal.get_input_embeddings().weight
    heads = {id(module): name for name, module in causal.named_modules()}
    return tuple(n for n, _ in names if is_tied and n == f"{heads[id(head)]}.weight")


def _load_network(base: Path, config: ModelConfig, weights: Weights) -> PreTrainedModel:
    causal = load_causal(base)
    apply_weights(
        causal,
        select_weights(weights, "lm."),
        scale=config.lora_scale,
        may_lack=tied_names(causal),
    )
    return causal
