"""The Transformer baseline: a model goes in, its prefix encoder's own texts come out."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cog.baselines.token_loop import TokenLoop
from cog.decoding.request import Request
from cog.decoding.text import GrowingText
from cog.model.load import CogModel
from cog.records import Generation


class TransformerGenerator:
    """The prefix encoder without phrases (CoG, section 4.1: Transformer).

    :param model: A CoG model, or one that was trained with the objective ``tokens``.
    :param corpus_id: The corpus that the texts are written for.
    """

    def __init__(self, model: CogModel, *, corpus_id: str) -> None:
        self.model = model
        self._loop = TokenLoop(model)
        self._corpus_id = corpus_id

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        """Write a batch of texts together, token by token.

        :param requests: What to write; settings of retrieval and of phrases do not count.
        :returns: The texts, in the order asked.
        :raises GenerationError: If a prefix or a setting cannot be used.
        """
        if not requests:
            return []
        texts, seconds = self._loop.write(requests)
        shared = {"retrieve": 0.0, "gather": 0.0, "decode": round(seconds / len(texts), 4)}
        model = self.model
        return [
            describe_tokens(
                request, text, corpus_id=self._corpus_id, index="", model=model, seconds=shared
            )
            for request, text in zip(requests, texts, strict=True)
        ]

    def score_tokens(self, request: Request, token_ids: NDArray[np.int32]) -> NDArray[np.float64]:
        """Log-probability of each token of a text that follows, as :class:`TokenLoop` has it."""
        return self._loop.score_tokens(request, token_ids)


def describe_tokens(
    request: Request,
    text: GrowingText,
    *,
    corpus_id: str,
    index: str,
    model: CogModel,
    seconds: dict[str, float],
) -> Generation:
    """Put a text that was written token by token into the record that every system returns."""
    segments = tuple(text.segments)
    return Generation(
        prefix=request.prefix,
        text="".join(segment.text for segment in segments),
        corpus=corpus_id,
        index=index,
        model=model.fingerprint,
        decoding=request.decoding,
        num_steps=len(segments),
        num_tokens=len(segments),
        seconds=seconds,
        segments=segments,
        precision=model.prefix_encoder.precision,
    )
