"""Counts of a corpus: a project and a card go in, JSON-ready figures come out."""

from dataclasses import asdict
from typing import Any

import numpy as np

from cog.cards import Card, format_card
from cog.corpus.documents import DocumentStore, load_report
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


def measure_corpus(paths: ProjectPaths, corpus_id: str) -> dict[str, Any]:
    """Measure the documents of a prepared corpus.

    :param paths: The project.
    :param corpus_id: The corpus.
    :returns: Counts, what was skipped and why, and the spread of words per document.
    :raises CorpusError: If the corpus is not prepared.
    """
    corpus_paths = paths.corpus(corpus_id)
    store = DocumentStore(corpus_paths.documents)
    report = store.load_report()
    lengths = np.fromiter(
        (len(document.text.split()) for document in store.iter_documents()), dtype=np.int64
    )
    spread = {name: int(np.quantile(lengths, share)) for name, share in QUANTILES.items()}
    return {
        "corpus": corpus_id,
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
        "size_bytes": corpus_paths.documents.stat().st_size,
    }
