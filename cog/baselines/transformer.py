"""The Transformer baseline: a model goes in, its prefix encoder's own texts come out.

Baselines that retrieve change what is read, or the distribution that is chosen from.
"""

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from cog.baselines.token_loop import TokenLoop
from cog.decoding.request import Request
from cog.decoding.text import GrowingText
from cog.model.load import CogModel
from cog.records import Generation


class TransformerGenerator:
    """The prefix encoder without phrases (CoG, section 4.1: Transformer).

    The model may have been trained with the objective ``tokens``. The corpus is searched, or the
    one that texts are written for; ``index`` is the digest of what is searched.
    """

    def __init__(
        self, model: CogModel, *, corpus_id: str, index: str = "", loop: TokenLoop | None = None
    ) -> None:
        self.model = model
        self.loop = loop or TokenLoop(model)
        self.searched_seconds = 0.0  # of the batch
        self._corpus_id, self._index = corpus_id, index

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        """Write a batch of texts together, token by token; settings that do not apply do not count.

        The seconds of ``retrieve`` are those of searching.
        """
        if not requests:
            return []
        self.searched_seconds = 0.0
        began = time.perf_counter()
        texts = self.loop.write([self.place(each) for each in requests], blend=self.blend)
        spent, searched = time.perf_counter() - began, self.searched_seconds
        seconds = {
            "retrieve": round(searched / len(texts), 4),
            "gather": 0.0,
            "decode": round((spent - searched) / len(texts), 4),
        }
        return [self._describe(*each, seconds) for each in zip(requests, texts, strict=True)]

    def score_tokens(self, request: Request, token_ids: NDArray[np.int32]) -> NDArray[np.float64]:
        """Log-probability of each token of a text that follows, as :class:`TokenLoop` has it."""
        return self.loop.score_tokens(self.place(request), token_ids, blend=self.blend)

    def place(self, request: Request) -> Request:
        """What is read instead of a prefix."""
        return request

    def blend(self, _states: Tensor, weights: Tensor) -> Tensor:
        """What is chosen from instead of the model's distribution."""
        return weights

    def _describe(
        self, request: Request, text: GrowingText, seconds: dict[str, float]
    ) -> Generation:
        segments = tuple(text.segments)
        return Generation(
            prefix=request.prefix,
            text="".join(segment.text for segment in segments),
            corpus=self._corpus_id,
            index=self._index,
            model=self.model.fingerprint,
            decoding=request.decoding,
            num_steps=len(segments),
            num_tokens=len(segments),
            seconds=seconds,
            segments=segments,
            precision=self.model.prefix_encoder.precision,
        )
