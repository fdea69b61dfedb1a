"""What a corpus can give: a corpus id goes in; how much of it could be copied comes out."""

import json
import time
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from cog.atomic import write_text_atomically
from cog.corpus.documents import DocumentStore, documents_digest
from cog.errors import CorpusError
from cog.index.read.reader import PhraseIndex, open_index
from cog.model.config import ModelConfig, load_config
from cog.model.fingerprint import fingerprint_model
from cog.params import Params
from cog.paths import ProjectPaths
from cog.progress import Progress
from cog.training.segmentation.corpus_words import CorpusWords, collect_index, collect_texts
from cog.training.segmentation.matches import find_in_corpus, walk_words
from cog.training.segmentation.retrieved import find_in_neighbours, iter_neighbours

CORPUS = "corpus"
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


@dataclass(frozen=True, slots=True)
class _Matches:
    words: CorpusWords
    lengths: NDArray[np.uint8]
    index_digest: str
    seconds: dict[str, float]


def segment_corpus(
    paths: ProjectPaths, corpus_id: str, *, params: Params, progress: Progress
) -> Segmentation:
    """Cut a corpus into phrases of other documents and words (CoG, appendix B), and count them.

    :param paths: The project.
    :param corpus_id: The corpus.
    :param params: params.yaml; its section ``segment`` says where phrases may come from.
    :param progress: Told of documents that are read.
    :returns: What was found; the report lies in ``segments.json``, too.
    :raises CorpusError: If the documents are not prepared, or there are none.
    :raises IndexNotBuiltError: If ``retrieved`` is asked for and there is no index.
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
            about=corpus_id,
        )
    is_retrieved = params.segment.source == RETRIEVED
    match = _match_neighbours if is_retrieved else _match_corpus
    matches = match(paths, corpus_id, params=params, config=config, progress=progress)
    phrase_lengths = matches.lengths[walk_words(matches.lengths)]
    counts = np.bincount(phrase_lengths, minlength=config.max_phrase_words + 1).tolist()
    report = SegmentReport(
        corpus=corpus_id,
        source=params.segment.source,
        top_k_documents=params.segment.top_k_documents if is_retrieved else 0,
        model=fingerprint_model(folder),
        documents_digest=documents_digest(store.path),
        index_digest=matches.index_digest,
        min_phrase_words=config.min_phrase_words,
        max_phrase_words=config.max_phrase_words,
        num_documents=matches.words.num_documents,
        num_words=matches.words.num_words,
        num_phrases=len(phrase_lengths),
        copied_words=int(phrase_lengths.sum()),
        lengths={str(length): count for length, count in enumerate(counts) if length >= 2},
    )
    content = json.dumps(asdict(report), indent=1) + "\n"
    write_text_atomically(paths.corpus(corpus_id).segments, content)
    return Segmentation(report, matches.seconds | _since(began, "total"))


def _match_corpus(
    paths: ProjectPaths,
    corpus_id: str,
    *,
    params: Params,
    config: ModelConfig,
    progress: Progress,
) -> _Matches:
    from cog.model.load import load_splitter

    at = time.perf_counter()
    documents = DocumentStore(paths.corpus(corpus_id).documents).iter_documents()
    words = collect_texts(
        (document.text for document in documents),
        splitter=load_splitter(paths.model(params.model)),
        progress=progress,
    )
    seconds = _since(at, "read")
    at = time.perf_counter()
    lengths = find_in_corpus(
        words, min_words=config.min_phrase_words, max_words=config.max_phrase_words
    )
    return _Matches(words, lengths, "", seconds | _since(at, "match"))


def _match_neighbours(
    paths: ProjectPaths,
    corpus_id: str,
    *,
    params: Params,
    config: ModelConfig,
    progress: Progress,
) -> _Matches:
    at = time.perf_counter()
    with _open_index(paths, corpus_id, params=params) as index:
        words = collect_index(index, progress=progress)
        seconds = _since(at, "read")
        at = time.perf_counter()
        neighbours = iter_neighbours(
            index, words.run_documents, top_k=params.segment.top_k_documents
        )
        lengths = find_in_neighbours(
            words,
            neighbours,
            min_words=config.min_phrase_words,
            max_words=config.max_phrase_words,
        )
        return _Matches(words, lengths, index.digest, seconds | _since(at, "match"))


def _open_index(paths: ProjectPaths, corpus_id: str, *, params: Params) -> PhraseIndex:
    """Open the index of a corpus if it is of the project's model and of the corpus's documents."""
    return open_index(
        paths.corpus(corpus_id),
        locks=paths.locks,
        model_fingerprint=fingerprint_model(paths.model(params.model)),
        documents_digest_of=lambda place: documents_digest(place.documents),
    )


def _since(at: float, name: str) -> dict[str, float]:
    return {name: time.perf_counter() - at}
