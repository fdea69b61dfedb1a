"""The peer of the decoding benchmarks: the same weights in plain transformers."""

import time
from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from cog.records import Decoding


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
