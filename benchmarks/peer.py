"""The peer of the decoding benchmarks: the same weights in plain transformers."""

import time
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import PreTrainedModel

from cog.model.base import get_base_folder
from cog.model.config import load_config
from cog.model.modules import load_trained
from cog.model.weights import load_weights, select_weights
from cog.records import Decoding


def load_network(folder: Path) -> PreTrainedModel:
    """Load the network of a model's prefix encoder, as trained, in float32.

    :param folder: The model's folder.
    :returns: The network.
    """
    config = load_config(folder)
    base = get_base_folder(config.prefix_base, model_folder=folder)
    weights = load_weights(folder, config, parts=("lm.",))
    return load_trained(base, select_weights(weights, "lm."), scale=config.lora_scale)


def run_peer(peer: PreTrainedModel, ids: Sequence[list[int]], decoding: Decoding) -> float:
    """Continue prompts with ``generate``.

    :param peer: The model.
    :param ids: Token ids of the prompts.
    :param decoding: How.
    :returns: Seconds.
    """
    began = time.perf_counter()
    longest = max(map(len, ids))
    batch = torch.tensor([[2] * (longest - len(row)) + row for row in ids])
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in ids])
    with torch.inference_mode():
        output = peer.generate(
            batch.to(peer.device),
            attention_mask=mask.to(peer.device),
            do_sample=decoding.method == "nucleus",
            top_p=decoding.top_p,
            top_k=0,
            max_new_tokens=decoding.max_new_tokens,
            min_new_tokens=decoding.max_new_tokens,
            eos_token_id=None,
            pad_token_id=2,
        ).cpu()
    seconds = time.perf_counter() - began
    assert output.shape[1] == longest + decoding.max_new_tokens
    return seconds
