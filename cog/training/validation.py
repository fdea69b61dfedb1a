"""Validation: a model goes in, what it makes of held-out documents comes out.

The batches are the same every time, made once: chunks of documents that are never trained on,
segmented against each other.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import nn

from cog.profiles import LossProfile
from cog.training.batches import Batch, BatchSource, iter_batches
from cog.training.tensors import to_tensors


def count_written(batch: Batch) -> int:
    """Count the tokens that the choices of a batch write, where they are all that write its chunks.

    That is every token, but for the first of a chunk where no begin token stands before it.
    """
    ends = batch.token_mask.sum(1)
    firsts = ends - 1  # column of the first query of each chunk
    np.minimum.at(firsts, batch.labels.query_chunks, batch.labels.query_positions)
    return int((ends - 1 - firsts).sum())


def make_validation(
    source: BatchSource, *, num_batches: int, losses: LossProfile, device: torch.device
) -> Callable[[nn.Module], Mapping[str, float]]:
    """Make what measures a model on held-out documents."""
    size = min(source.sampler.num_chunks, len(source.chunks))
    num_different = max(1, len(source.chunks) // size)
    numbers = range(min(num_batches, num_different))
    batches = list(iter_batches(source, numbers, num_workers=0))

    def validate(model: nn.Module) -> Mapping[str, float]:
        return measure(model, batches, losses=losses, device=device)

    return validate


@torch.no_grad()
def measure(
    model: nn.Module,
    batches: Sequence[Batch],
    *,
    losses: LossProfile,
    device: torch.device,
) -> dict[str, float]:
    """Measure a model on batches; it is left in evaluation mode.

    Gives ``token_loss`` per token; ``phrase_loss`` per choice, as it is learnt;
    ``segment_log_probability`` of the text along its segmentation, per token that is written, in
    one softmax that leaves nothing out; ``phrase_share`` of the choices that are phrases.
    """
    model.eval()
    sums = torch.zeros(3, dtype=torch.float64)
    num_tokens = num_written = num_queries = num_phrases = 0
    for batch in batches:
        batch_losses = model(to_tensors(batch, losses, device, is_measured=True))
        sums[0] += float(batch_losses.token) * batch.num_tokens
        sums[1] += float(batch_losses.phrase) * batch.num_queries
        if batch_losses.segment is not None:
            sums[2] += float(batch_losses.segment) * batch.num_queries
        num_tokens += batch.num_tokens
        num_written += count_written(batch)
        num_queries += batch.num_queries
        num_phrases += int(batch.labels.is_phrase.sum())
    token, phrase, segments = sums.tolist()
    measured = {"token_loss": token / max(1, num_tokens)}
    if getattr(model, "bert", None) is None:  # never copies: its segments are its tokens
        return {**measured, "segment_log_probability": -measured["token_loss"]}
    return {
        **measured,
        "phrase_loss": phrase / max(1, num_queries),
        "segment_log_probability": segments / max(1, num_written),
        "phrase_share": num_phrases / max(1, num_queries),
    }
