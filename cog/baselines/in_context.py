"""In-context retrieval: a model and an index go in, texts that saw the nearest chunks come out.

Ram et al. 2023: what is retrieved for a prompt stands before it, and nothing is trained. Differs
from the paper: neighbours are those of the prompt, as for the copy-generator, and stay.
"""

import time
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cog.baselines.system import NEAREST_LAST
from cog.baselines.transformer import TransformerGenerator
from cog.decoding.request import Request
from cog.index.read.reader import PhraseIndex
from cog.model.load import CogModel

BETWEEN = "\n\n"


class InContextGenerator(TransformerGenerator):
    """The prefix encoder with the nearest chunks before the prompt.

    There are ``top_k_documents`` of them, ``nearest-last``, next to the prompt, or
    ``nearest-first``.
    """

    def __init__(
        self, model: CogModel, index: PhraseIndex, *, placement: str = NEAREST_LAST
    ) -> None:
        super().__init__(model, corpus_id=index.corpus, index=index.digest)
        self._chunks = index
        self._placement = placement

    def place(self, request: Request) -> Request:
        """Put the nearest chunks before a prompt; what becomes too long is read from its end."""
        top_k = request.decoding.top_k_documents
        if not top_k:
            return request
        began = time.perf_counter()
        vectors = self.model.retriever.encode_texts([request.prefix])
        chunks = self._read(self._chunks.search_chunks(vectors, top_k=top_k).rows[0])
        self.searched_seconds += time.perf_counter() - began
        if self._placement == NEAREST_LAST:
            chunks.reverse()
        return replace(request, prefix=BETWEEN.join([*chunks, request.prefix]))

    def _read(self, chunk_ids: NDArray[np.int64]) -> list[str]:
        gathered = self._chunks.gather_chunks(chunk_ids)
        documents = self._chunks.get_documents(set(gathered.document_ordinals.tolist()))
        texts = []
        for number, ordinal in enumerate(gathered.document_ordinals.tolist()):
            first, last = gathered.word_offsets[number], gathered.word_offsets[number + 1] - 1
            begin, end = gathered.word_chars[first, 0], gathered.word_chars[last, 1]
            texts.append(documents[ordinal].text[begin:end].strip())
        return texts
