"""Counts of a corpus: a project and a card go in, JSON-ready figures come out."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np

from cog.cards import Card, format_card
from cog.corpus.documents import DocumentStore, load_report
from cog.corpus.parts import count_words
from cog.corpus.suitability import CountPieces, TextSample, measure_suitability
from cog.paths import ProjectPaths

QUANTILES = {"min": 0.0, "median": 0.5, "p95": 0.95, "max": 1.0}


def describe_corpus(paths: ProjectPaths, card: Card) -> dict[str, Any]:
    """Say what a corpus is and what is built of it.

    :param paths: The project.
    :param card: The card with everything filled in.
    :returns: The card, and the report of ``prepare`` or None.
    """
    documents = paths.corpus(card.id).documents
    report = asdict(load_report(documents)) if documents.exists() else None
    return {"card": format_card(card), "root": card.root, "prepared": report}


def measure_corpus(
    paths: ProjectPaths, card: Card, *, count_pieces: CountPieces | None
) -> dict[str, Any]:
    """Measure the documents of a prepared corpus.

    :param paths: The project.
    :param card: The card with everything filled in.
    :param count_pieces: Counts tokens and pieces of a text; None if there is no model.
    :returns: Counts, what was skipped and why, the spread of words per document, and what a sample
        says of its language and of the model's tokenizers.
    :raises CorpusError: If the corpus is not prepared.
    """
    corpus_paths = paths.corpus(card.id)
    store = DocumentStore(corpus_paths.documents)
    report = store.load_report()
    sample = TextSample()
    lengths = np.fromiter(_iter_lengths(store, sample), dtype=np.int64)
    suitability = measure_suitability(sample, language=card.language, count_pieces=count_pieces)
    spread = {name: int(np.quantile(lengths, share)) for name, share in QUANTILES.items()}
    return {
        "corpus": card.id,
        "num_read": report.num_read,
        "num_documents": report.num_documents,
        "skipped": report.skipped,
        "num_words": report.num_words,
        "num_characters": report.num_characters,
        "words_per_document": {"mean": round(float(lengths.mean()), 1), **spread},
        "num_prompts": report.num_prompts,
        "normaliser": report.normaliser,
        "digest": report.digest,
        "notes": list(report.notes),
        "suitability": asdict(suitability),
        "size_bytes": corpus_paths.documents.stat().st_size,
    }


def _iter_lengths(store: DocumentStore, sample: TextSample) -> Iterator[int]:
    for document in store.iter_documents():
        sample.add(document)
        yield count_words(document.text)
