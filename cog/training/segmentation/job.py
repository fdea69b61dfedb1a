"""What a corpus can give: a corpus id goes in; how much of it could be copied comes out."""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from cog.atomic import write_text_atomically
from cog.corpus.documents import DocumentStore, documents_digest
from cog.errors import CorpusError
from cog.index.read.reader import PhraseIndex, open_index
from cog.model.config import load_config
from cog.model.fingerprint import fingerprint_model
from cog.params import Params
from cog.paths import ProjectPaths
from cog.progress import Progress
from cog.training.segmentation.corpus_words import CorpusWords, collect_index, collect_texts
from cog.training.segmentation.matches import find_in_corpus, walk_words
from cog.training.segmentation.retrieved import find_in_neighbours, iter_neighbours

RETRIEVED = "retrieved"


@dataclass(frozen=True, slots=True)
class SegmentReport:
    """What segmenting a corpus found.

    :param source: ``corpus`` (every other document) or ``retrieved`` (the nearest chunks).
    :param top_k_documents: Number of chunks each chunk was matched with; 0 for all.
    :param index_digest: Digest of the index whose vectors were searched; empty if none was.
    :param lengths: Number of phrases by their number of words, as text.
    """

    corpus: str
    source: str
    top_k_documents: int
    model: str
    documents_digest: str
    index_digest: str
    min_phrase_words: int
    max_phrase_words: int
    num_documents: int
    num_words: int
    num_phrases: int
    copied_words: int
    lengths: dict[str, int]

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

    ``params.segment`` says where phrases may come from; the report lies in ``segments.json``, too.
    Without documents it is a ``CorpusError``, without the index that ``retrieved`` needs an
    ``IndexNotBuiltError``.
    """
    began = time.perf_counter()
    folder, section = paths.model(params.model), params.segment
    config = load_config(folder)
    limits = {"min_words": config.min_phrase_words, "max_words": config.max_phrase_words}
    store = DocumentStore(paths.corpus(corpus_id).documents)
    if not store.num_documents:
        raise CorpusError(
            f"corpus {corpus_id} must hold documents to segment",
            found="none",
            run=f"cog corpus prepare {corpus_id}",
            about=corpus_id,
        )
    if section.source == RETRIEVED:
        with _open_index(paths, corpus_id, params=params) as index:
            words = collect_index(index, progress=progress)
            read = time.perf_counter()
            nearest = iter_neighbours(index, words.run_documents, top_k=section.top_k_documents)
            lengths = find_in_neighbours(words, nearest, **limits)
            index_digest = index.digest
    else:
        words = _collect_documents(store, folder, progress=progress)
        read = time.perf_counter()
        lengths = find_in_corpus(words, **limits)
        index_digest = ""
    matched = time.perf_counter()
    phrase_lengths = lengths[walk_words(lengths)]
    counts = np.bincount(phrase_lengths, minlength=config.max_phrase_words + 1).tolist()
    report = SegmentReport(
        corpus=corpus_id,
        source=section.source,
        top_k_documents=section.top_k_documents if index_digest else 0,
        model=fingerprint_model(folder),
        documents_digest=documents_digest(store.path),
        index_digest=index_digest,
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


def _collect_documents(store: DocumentStore, model: Path, *, progress: Progress) -> CorpusWords:
    from cog.model.load import load_splitter  # torch, which an index does not need

    texts = (document.text for document in store.iter_documents())
    return collect_texts(texts, splitter=load_splitter(model), progress=progress)


def _open_index(paths: ProjectPaths, corpus_id: str, *, params: Params) -> PhraseIndex:
    # of the project's model and of the corpus's documents, or refused
    return open_index(
        paths.corpus(corpus_id),
        locks=paths.locks,
        model_fingerprint=fingerprint_model(paths.model(params.model)),
        documents_digest_of=lambda place: documents_digest(place.documents),
    )
