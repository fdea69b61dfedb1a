"""The plain language model: prompts go in, the seconds that ``transformers`` takes come out.

The base of the prefix encoder under ``generate`` with its KV cache: what the speed of the
copy-generator is told against.
"""

import time
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import PreTrainedModel

from cog.model.load import load_causal, resolve_device
from cog.model.words import load_tokenizer
from cog.records import Decoding

WARM_UP_TOKENS = 4


def time_transformers(
    folder: Path, prefixes: Sequence[str], *, decoding: Decoding, device: str
) -> float:
    """Continue prompts as one batch, after a short run that warms up."""
    model = load_causal(folder)
    model.to(resolve_device(device))  # type: ignore[arg-type]
    model.train(mode=False)
    tokenizer = load_tokenizer(folder)
    rows = [tokenizer.encode(prefix, add_special_tokens=False).ids or [0] for prefix in prefixes]
    with torch.random.fork_rng():
        torch.manual_seed(decoding.seed)
        _continue(model, rows, decoding, num_tokens=min(WARM_UP_TOKENS, decoding.max_new_tokens))
        began = time.perf_counter()
        _continue(model, rows, decoding, num_tokens=decoding.max_new_tokens)
        return (time.perf_counter() - began) / len(rows)


@torch.inference_mode()
def _continue(
    model: PreTrainedModel, rows: Sequence[list[int]], decoding: Decoding, *, num_tokens: int
) -> None:
    longest = max(map(len, rows))
    ids = torch.tensor([[0] * (longest - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
    choice: dict[str, float] = {"do_sample": False}
    if decoding.method != "greedy":
        choice = {"do_sample": True, "top_p": decoding.top_p, "top_k": 0}
    output = model.generate(  # type: ignore[operator]
        ids.to(model.device),
        attention_mask=mask.to(model.device),
        max_new_tokens=num_tokens,
        min_new_tokens=num_tokens,
        eos_token_id=None,
        pad_token_id=0,
        use_cache=True,
        **choice,
    )
    output.cpu()  # waits for the device
