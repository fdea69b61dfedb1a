"""Loading the fixed trained model: a model folder goes in, the encoders ready to run come out."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import torch

from cog.errors import CheckpointError
from cog.model.base import get_base_folder
from cog.model.base_form import read_form
from cog.model.bert import BertNetwork, is_bert
from cog.model.config import ModelConfig, load_config
from cog.model.fingerprint import fingerprint_model
from cog.model.llama import LlamaNetwork, is_llama, list_tied
from cog.model.matrices import choose_precision
from cog.model.phrase_encoder import PhraseEncoder, untrained_names
from cog.model.pieces import MeanRetriever
from cog.model.prefix_encoder import PrefixEncoder
from cog.model.protocols import CausalNetwork, TextNetwork
from cog.model.threads import describe_numerics, pin_threads
from cog.model.weights import TrainedTensors, Weights, apply_weights, load_weights, select_weights
from cog.model.words import WordSplitter, load_tokenizer
from cog.records import FLOAT32

GPU_TOLERANCE = 1e-4


@dataclass(frozen=True, slots=True)
class IndexModel:
    """What an index is built with."""

    fingerprint: str
    config: ModelConfig  # has the limits of chunks and phrases
    splitter: WordSplitter
    phrase_encoder: PhraseEncoder
    retriever: MeanRetriever

    @property
    def numerics(self) -> str:
        """What decides the last bits of a vector, besides the model and the text."""
        return describe_numerics(self.phrase_encoder.device)

    @property
    def batch_tolerance(self) -> float:
        """How far a vector may move with its batch, as a share of its largest value.

        On a processor, whose threads are pinned, not at all: an index that is built twice is the
        same bytes. A GPU sums in an order that depends on the size of the batch, and encoding every
        text alone would leave it idle; what is allowed there is a fortieth of what rounding to int8
        changes.
        """
        return 0.0 if self.phrase_encoder.device.type == "cpu" else GPU_TOLERANCE

    def pin_threads(self) -> AbstractContextManager[int]:
        """Let every operation run on one thread, so that batches do not change vectors.

        As :func:`~cog.model.threads.pin_threads`, it gives the number of threads that may encode at
        once.
        """
        return pin_threads(self.phrase_encoder.device)


@dataclass(frozen=True, slots=True)
class CogModel:
    """What text is generated with."""

    fingerprint: str
    config: ModelConfig  # has the limits of chunks and phrases
    splitter: WordSplitter
    retriever: MeanRetriever
    prefix_encoder: PrefixEncoder


def load_splitter(folder: Path) -> WordSplitter:
    """Load only what splits texts into tokens and words."""
    config = load_config(folder)
    return WordSplitter.from_folder(get_base_folder(config.prefix_base, model_folder=folder))


def load_index_model(folder: Path, *, device: str = "cpu") -> IndexModel:
    """Load what building an index needs."""
    config = load_config(folder)
    target = resolve_device(device)
    weights = load_weights(folder, config, parts=("bert.", "start.", "end."))
    base = get_base_folder(config.phrase_base, model_folder=folder)
    trained = select_weights(weights, "bert.")
    phrase_encoder = PhraseEncoder(
        load_text_network(base, trained, scale=config.lora_scale, device=target),
        load_tokenizer(base),
        weights,
        max_pieces=config.max_pieces,
    )
    return IndexModel(
        fingerprint=fingerprint_model(folder),
        config=config,
        splitter=load_splitter(folder),
        phrase_encoder=phrase_encoder,
        retriever=_load_retriever(folder, config, device=target),
    )


def load_model(
    folder: Path, *, device: str = "cpu", precision: str = FLOAT32, keeps_modules: bool = False
) -> CogModel:
    """Load what generating text needs.

    ``keeps_modules`` says whether the prefix encoder runs the modules of its base, for what is
    hooked to them; slower.
    """
    config = load_config(folder)
    target = resolve_device(device)
    chosen = choose_precision(precision, target)  # refused before anything is read
    base = get_base_folder(config.prefix_base, model_folder=folder)
    # Python's work here, beside that of torch, which lets other threads run
    with ThreadPoolExecutor(1, thread_name_prefix="load") as beside:
        splitter = beside.submit(WordSplitter.from_folder, base)
        fingerprint = beside.submit(fingerprint_model, folder)
        weights = load_weights(folder, config, parts=("lm.", "qproj."))
        network = _load_causal_network(
            base,
            select_weights(weights, "lm."),
            scale=config.lora_scale,
            precision=chosen,
            device=target,
            keeps_modules=keeps_modules,
        )
        return CogModel(
            fingerprint=fingerprint.result(),
            config=config,
            splitter=splitter.result(),
            retriever=_load_retriever(folder, config, device=target),
            prefix_encoder=PrefixEncoder(
                network,
                query_projection=weights.get("qproj.weight"),
                begin_token_id=config.begin_token_id,
            ),
        )


def resolve_device(device: str) -> torch.device:
    """Turn ``cpu``, ``cuda`` or ``auto`` (a GPU if there is one) into a device."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise CheckpointError(
            "--device cuda needs a GPU", found="no GPU that torch can use", run="use --device cpu"
        )
    return torch.device(device)


def load_text_network(
    base: Path, weights: Weights, *, scale: float, device: torch.device
) -> TextNetwork:
    """Load a bidirectional encoder, and what was trained of it by the base model's names.

    Low-rank updates have the factor ``scale``.
    """
    form = read_form(base)
    if form is not None and is_bert(form):
        may_lack = untrained_names(form.tensors)
        tensors = TrainedTensors(
            form.tensors, weights, scale=scale, may_lack=may_lack, device=device
        )
        return BertNetwork(form, tensors)
    from cog.model.modules import TextModules, load_bidirectional  # takes seconds

    model = load_bidirectional(base)
    may_lack = untrained_names(model.state_dict())
    apply_weights(model, weights, scale=scale, may_lack=may_lack)
    return TextModules(model, device=device)


def _load_causal_network(
    base: Path,
    weights: Weights,
    *,
    scale: float,
    precision: str,
    device: torch.device,
    keeps_modules: bool,
) -> CausalNetwork:
    form = read_form(base)
    if form is not None and is_llama(form) and not keeps_modules:
        tensors = TrainedTensors(
            form.tensors, weights, scale=scale, may_lack=list_tied(form), device=device
        )
        return LlamaNetwork(form, tensors, precision)
    from cog.model.modules import CausalModules, load_trained  # takes seconds

    model = load_trained(base, weights, scale=scale)
    return CausalModules(model, precision=precision, device=device, keeps_modules=keeps_modules)


def _load_retriever(folder: Path, config: ModelConfig, *, device: torch.device) -> MeanRetriever:
    base = get_base_folder(config.retriever_base, model_folder=folder)
    network = load_text_network(base, {}, scale=1.0, device=device)
    return MeanRetriever(network, load_tokenizer(base), max_pieces=config.max_pieces)
