"""What a corpus can give: a corpus id goes in; how much of it could be copied comes out."""

import json
import time
from dataclasses import asdict, dataclass

import numpy as np

from cog.atomic import write_text_atomically
from cog.corpus.documents import DocumentStore, documents_digest
from cog.errors import CorpusError
from cog.model.config import load_config
from cog.model.fingerprint import fingerprint_model
from cog.params import Params
from cog.paths import ProjectPaths
from cog.progress import Progress
from cog.training.segmentation.grams import walk_words
from cog.training.segmentation.matches import collect_texts, find_in_corpus


@dataclass(frozen=True, slots=True)
class SegmentReport:
    """What segmenting a corpus found."""

    corpus: str
    model: str
    documents_digest: str
    min_phrase_words: int
    max_phrase_words: int
    num_documents: int
    num_words: int
    num_phrases: int
    copied_words: int
    lengths: dict[str, int]  # number of phrases by their number of words, as text

    @property
    def copied_share(self) -> float:
        """Share of words that lie in phrases; 0 where there are no words."""
        return self.copied_words / self.num_words if self.num_words else 0.0


@dataclass(frozen=True, slots=True)
class Segmentation:
    """A report, and the seconds that each part took, and all."""

    report: SegmentReport
    seconds: dict[str, float]

    @property
    def words_per_second(self) -> float:
        """Words from the documents to the report."""
        return self.report.num_words / max(self.seconds["total"], 1e-9)


def segment_corpus(
    paths: ProjectPaths, corpus_id: str, *, params: Params, progress: Progress
) -> Segmentation:
    """Cut a corpus into phrases of other documents and words (CoG, appendix B), and count them.

    The report lies in ``segments.json``, too. Without documents it is a ``CorpusError``.
    """
    began = time.perf_counter()
    folder = paths.model(params.model)
    config = load_config(folder)
    store = DocumentStore(paths.corpus(corpus_id).documents)
    if not store.num_documents:
        raise CorpusError(
            f"corpus {corpus_id} must hold documents to segment",
            found="none",
            run=f"cog corpus prepare {corpus_id}",
        )
    from cog.model.load import load_splitter  # torch, which what is refused above does not need

    texts = (document.text for document in store.iter_documents())
    words = collect_texts(texts, splitter=load_splitter(folder), progress=progress)
    read = time.perf_counter()
    lengths = find_in_corpus(
        words, min_words=config.min_phrase_words, max_words=config.max_phrase_words
    )
    matched = time.perf_counter()
    phrase_lengths = lengths[walk_words(lengths)]
    counts = np.bincount(phrase_lengths, minlength=config.max_phrase_words + 1).tolist()
    report = SegmentReport(
        corpus=corpus_id,
        model=fingerprint_model(folder),
        documents_digest=documents_digest(store.path),
        min_phrase_words=config.min_phrase_words,
        max_phrase_words=config.max_phrase_words,
        num_documents=words.num_documents,
        num_words=words.num_words,
        num_phrases=len(phrase_lengths),
        copied_words=int(phrase_lengths.sum()),
        lengths={str(length): count for length, count in enumerate(counts) if length >= 2},
    )
    content = json.dumps(asdict(report), indent=1) + "\n"
    write_text_atomically(paths.corpus(corpus_id).segments, content)
    ended = time.perf_counter()
    seconds = {"read": read - began, "match": matched - read, "total": ended - began}
    return Segmentation(report, seconds)
