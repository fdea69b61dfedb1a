"""Segmenting a corpus: a corpus id goes in, ``segments.parquet`` and its report come out."""

import time
from dataclasses import dataclass

from cog.corpus.documents import DocumentStore, documents_digest
from cog.errors import CorpusError
from cog.index.activation import get_model_folder
from cog.index.reader import PhraseIndex, open_index
from cog.model.config import ModelConfig, load_config
from cog.model.fingerprint import fingerprint_model
from cog.params import Params
from cog.paths import ProjectPaths
from cog.progress import Progress
from cog.training.segmentation.corpus_words import (
    CorpusWords,
    collect_index,
    collect_texts,
)
from cog.training.segmentation.matches import Matches, find_in_corpus
from cog.training.segmentation.retrieved import find_in_neighbours, iter_neighbours
from cog.training.segmentation.store import SegmentReport, SegmentWriter
from cog.training.segmentation.walk import SegmentCounts, iter_segment_blocks

CORPUS = "corpus"
RETRIEVED = "retrieved"
SOURCES = (CORPUS, RETRIEVED)


@dataclass(frozen=True, slots=True)
class Segmentation:
    """What a run did.

    :param report: What it found.
    :param seconds: Seconds per part, and in all.
    """

    report: SegmentReport
    seconds: dict[str, float]

    @property
    def words_per_second(self) -> float:
        """Words from the documents to the file.

        :returns: Words per second.
        """
        return self.report.num_words / max(self.seconds["total"], 1e-9)


@dataclass(frozen=True, slots=True)
class _Found:
    words: CorpusWords
    matches: Matches
    index_digest: str
    seconds: dict[str, float]


def segment_corpus(
    paths: ProjectPaths, corpus_id: str, *, params: Params, progress: Progress
) -> Segmentation:
    """Cut the documents of a corpus into phrases of other documents and words (CoG, appendix B).

    :param paths: The project.
    :param corpus_id: The corpus.
    :param params: params.yaml; its section ``segment`` says where phrases may come from.
    :param progress: Told of documents that are read.
    :returns: What was found.
    :raises CorpusError: If the documents are not prepared, or there are none.
    :raises IndexNotBuiltError: If ``retrieved`` is asked for and there is no index.
    """
    began = time.perf_counter()
    folder = get_model_folder(paths, params)
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
    find = _find_retrieved if is_retrieved else _find_exactly
    found = find(paths, corpus_id, params=params, config=config, progress=progress)
    at = time.perf_counter()
    counts = SegmentCounts.empty(config.max_phrase_words)
    with SegmentWriter(paths.corpus(corpus_id).segments) as writer:
        for block in iter_segment_blocks(found.words, found.matches):
            writer.write(block)
            counts.add(block)
        report = SegmentReport(
            corpus=corpus_id,
            source=params.segment.source,
            top_k_documents=params.segment.top_k_documents if is_retrieved else 0,
            model=fingerprint_model(folder),
            documents_digest=documents_digest(store.path),
            index_digest=found.index_digest,
            min_phrase_words=config.min_phrase_words,
            max_phrase_words=config.max_phrase_words,
            num_documents=found.words.num_documents,
            num_words=found.words.num_words,
            num_phrases=counts.num_phrases,
            copied_words=counts.copied_words,
            lengths=counts.lengths,
            digest=writer.digest(),
        )
        writer.finish(report)
    return Segmentation(report, found.seconds | _since(at, "write") | _since(began, "total"))


def _find_exactly(
    paths: ProjectPaths,
    corpus_id: str,
    *,
    params: Params,
    config: ModelConfig,
    progress: Progress,
) -> _Found:
    from cog.model.load import load_splitter

    at = time.perf_counter()
    documents = DocumentStore(paths.corpus(corpus_id).documents).iter_documents()
    words = collect_texts(
        ((document.document_id, document.text) for document in documents),
        splitter=load_splitter(get_model_folder(paths, params)),
        progress=progress,
    )
    seconds = _since(at, "read")
    at = time.perf_counter()
    matches = find_in_corpus(
        words, min_words=config.min_phrase_words, max_words=config.max_phrase_words
    )
    return _Found(words, matches, "", seconds | _since(at, "match"))


def _find_retrieved(
    paths: ProjectPaths,
    corpus_id: str,
    *,
    params: Params,
    config: ModelConfig,
    progress: Progress,
) -> _Found:
    at = time.perf_counter()
    with open_corpus_index(paths, corpus_id, params=params) as index:
        words = collect_index(index, progress=progress)
        seconds = _since(at, "read")
        at = time.perf_counter()
        neighbours = iter_neighbours(
            index, words.run_documents, top_k=params.segment.top_k_documents
        )
        matches = find_in_neighbours(
            words,
            neighbours,
            min_words=config.min_phrase_words,
            max_words=config.max_phrase_words,
        )
        return _Found(words, matches, index.manifest.digest, seconds | _since(at, "match"))


def open_corpus_index(paths: ProjectPaths, corpus_id: str, *, params: Params) -> PhraseIndex:
    """Open the index of a corpus if it is of the project's model and of the corpus's documents.

    :param paths: The project.
    :param corpus_id: The corpus.
    :param params: params.yaml.
    :returns: The index; close it, or use it as a context manager.
    """
    corpus_paths = paths.corpus(corpus_id)
    return open_index(
        corpus_paths,
        locks=paths.locks,
        corpus_id=corpus_id,
        model_fingerprint=fingerprint_model(get_model_folder(paths, params)),
        documents_digest=documents_digest(corpus_paths.documents),
    )


def _since(at: float, name: str) -> dict[str, float]:
    return {name: time.perf_counter() - at}
