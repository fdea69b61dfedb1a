"""Text that a model may be trained on: documents go in, those that hold evaluation text are found.

Whatever a model was trained on cannot measure it, so training text is compared, run of words by run
of words, with the files of the evaluation before anything is learnt.
"""

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from cog.corpus.grams import ORDER, hash_grams
from cog.errors import EvaluationError
from cog.records import Document

REFUSE, DROP, KEEP = "refuse", "drop", "keep"
NUM_NAMED = 3


def screen_documents(
    documents: Iterable[Document], evaluation: Iterable[Document], *, action: str
) -> Iterator[Document]:
    """Let documents pass as they stream by, and look for 13 words in a row of the evaluation.

    One that shares them is left out (``drop``), or all are refused after the last (``refuse``),
    which is an ``EvaluationError``.
    """
    grams = [hash_grams(document.text) for document in evaluation]
    known = np.unique(np.concatenate([np.zeros(0, dtype=np.uint64), *grams]))
    shared: list[str] = []
    num_documents = 0
    for document in documents:
        num_documents += 1
        if not _has_any(known, hash_grams(document.text)):
            yield document
            continue
        shared.append(document.title or document.document_id)
        if action != DROP:
            yield document
    if action == REFUSE and shared:
        named = "; ".join(shared[:NUM_NAMED]) + ("; …" if len(shared) > NUM_NAMED else "")
        raise EvaluationError(
            "training text must hold nothing of the evaluation's",
            found=f"{len(shared)} of {num_documents} training documents share {ORDER} words in a "
            f"row with the evaluation text: {named}",
            run="leave these documents out with --on-overlap drop, or name other files",
        )


def _has_any(known: NDArray[np.uint64], grams: NDArray[np.uint64]) -> bool:
    if not len(known):
        return False
    places = np.minimum(np.searchsorted(known, grams), len(known) - 1)
    return bool((known[places] == grams).any())
