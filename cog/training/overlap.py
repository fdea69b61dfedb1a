"""Text that a model may be trained on: documents go in, those that hold evaluation text are found.

Whatever a model was trained on cannot measure it, so training text is compared, run of words by run
of words, with the files of the evaluation before anything is learnt.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from cog.corpus.grams import ORDER, GramHasher
from cog.errors import EvaluationError
from cog.records import Document

ACTIONS = ("refuse", "drop", "keep")
NUM_NAMED = 3


@dataclass(slots=True)
class Overlap:
    """What was found.

    :param num_documents: Number of training documents looked through.
    :param num_grams: Number of runs of words of the evaluation text, each counted once.
    :param found: Names of the documents that share a run of words with it, in order.
    """

    num_documents: int = 0
    num_grams: int = 0
    found: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        named = "; ".join(self.found[:NUM_NAMED]) + ("; …" if len(self.found) > NUM_NAMED else "")
        return (
            f"{len(self.found)} of {self.num_documents} training documents share {ORDER} words in "
            f"a row with the evaluation text" + (f": {named}" if named else "")
        )


class OverlapScreen:
    """Looks for evaluation text in training documents, as they stream by.

    :param evaluation: Documents of the evaluation.
    :param action: What happens with a training document that shares a run of words: ``refuse`` all
        of the text once it was looked through, ``drop`` the document, or ``keep`` it.
    :raises ValueError: If there is no such action.
    """

    def __init__(self, evaluation: Iterable[Document], *, action: str) -> None:
        if action not in ACTIONS:
            raise ValueError(f"no action {action!r}")
        self._action = action
        self._hasher = GramHasher(ORDER)
        grams = [self._hasher.hash_text(document.text) for document in evaluation]
        self._grams = np.unique(np.concatenate(grams)) if grams else np.zeros(0, dtype=np.uint64)
        self.overlap = Overlap(num_grams=len(self._grams))

    def screen(self, documents: Iterable[Document]) -> Iterator[Document]:
        """Let documents pass.

        :param documents: Training documents.
        :yields: Those that may be trained on.
        :raises EvaluationError: After the last one, if the action is to refuse and one was found.
        """
        for document in documents:
            self.overlap.num_documents += 1
            if self._is_shared(document):
                self.overlap.found.append(document.title or document.document_id)
                if self._action == "drop":
                    continue
            yield document
        if self._action == "refuse" and self.overlap.found:
            raise EvaluationError(
                "training text must hold nothing of the evaluation's",
                found=str(self.overlap),
                run="leave these documents out with --on-overlap drop, or name other files",
            )

    def _is_shared(self, document: Document) -> bool:
        grams = self._hasher.hash_text(document.text)
        if not len(grams) or not len(self._grams):
            return False
        places = np.searchsorted(self._grams, grams)
        places[places == len(self._grams)] = 0
        return bool((self._grams[places] == grams).any())
