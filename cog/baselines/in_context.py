"""In-context retrieval: a model and an index go in, texts that saw the nearest chunks come out.

Ram et al. 2023: what is retrieved for a prompt stands before it, and nothing is trained. Differs
from the paper: neighbours are those of the prompt, as for the copy-generator, and stay.
"""

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cog.baselines.system import NEAREST_LAST
from cog.baselines.token_loop import TokenLoop
from cog.baselines.transformer import describe_tokens
from cog.decoding.request import Request
from cog.index.read.reader import PhraseIndex
from cog.model.load import CogModel
from cog.records import Generation

BETWEEN = "\n\n"


class InContextGenerator:
    """The prefix encoder with the nearest chunks before the prompt.

    :param model: The model, whose retriever finds them.
    :param index: The open index they come from; ``top_k_documents`` says how many.
    :param placement: ``nearest-last``, next to the prompt, or ``nearest-first``.
    """

    def __init__(
        self, model: CogModel, index: PhraseIndex, *, placement: str = NEAREST_LAST
    ) -> None:
        self._placement = placement
        self.model = model
        self._loop = TokenLoop(model)
        self._index = index

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        """Write a batch of texts together, token by token.

        :param requests: What to write; settings of phrases do not count.
        :returns: The texts; the seconds of ``retrieve`` are those of finding chunks.
        """
        if not requests:
            return []
        began = time.perf_counter()
        placed = [self.place(request) for request in requests]
        retrieved = time.perf_counter() - began
        texts, seconds = self._loop.write(placed)
        shared = {
            "retrieve": round(retrieved / len(texts), 4),
            "gather": 0.0,
            "decode": round(seconds / len(texts), 4),
        }
        return [
            describe_tokens(
                request,
                text,
                corpus_id=self._index.corpus,
                index=self._index.digest,
                model=self.model,
                seconds=shared,
            )
            for request, text in zip(requests, texts, strict=True)
        ]

    def score_tokens(self, request: Request, token_ids: NDArray[np.int32]) -> NDArray[np.float64]:
        """Log-probability of each token of a text that follows, as :class:`TokenLoop` has it."""
        return self._loop.score_tokens(self.place(request), token_ids)

    def place(self, request: Request) -> Request:
        """Put the nearest chunks before a prompt.

        :param request: The request; a prefix that becomes too long is read from its end.
        :returns: The request with the longer prefix.
        """
        top_k = request.decoding.top_k_documents
        if not top_k:
            return request
        vectors = self.model.retriever.encode_texts([request.prefix])
        found = self._index.search_chunks(vectors, top_k=top_k)[0]
        chunks = self._read(found)
        if self._placement == NEAREST_LAST:
            chunks.reverse()
        return replace(request, prefix=BETWEEN.join([*chunks, request.prefix]))

    def _read(self, chunk_ids: NDArray[np.int64]) -> list[str]:
        gathered = self._index.gather_chunks(chunk_ids)
        documents = self._index.get_documents(set(gathered.document_ordinals.tolist()))
        texts = []
        for number, ordinal in enumerate(gathered.document_ordinals.tolist()):
            first, last = gathered.word_offsets[number], gathered.word_offsets[number + 1] - 1
            begin, end = gathered.word_chars[first, 0], gathered.word_chars[last, 1]
            texts.append(documents[ordinal].text[begin:end].strip())
        return texts
