"""Counts of a corpus: a project and a card go in, JSON-ready figures come out."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cog.cards import Card, format_card
from cog.corpus.documents import DocumentStore
from cog.corpus.parts import count_words
from cog.corpus.report import PrepareReport
from cog.corpus.sources import SourceRecord, load_source_record
from cog.corpus.suitability import CountPieces, TextSample, measure_suitability
from cog.paths import ProjectPaths

QUANTILES = {"min": 0.0, "median": 0.5, "p95": 0.95, "max": 1.0}


@dataclass(frozen=True, slots=True)
class Description:
    """What a corpus is and what is built of it."""

    card: Card  # the card with everything filled in
    fetched: SourceRecord | None  # what lies in `raw/`; None if nothing does
    prepared: PrepareReport | None  # what preparing it did; None if it is not prepared

    def to_json(self) -> dict[str, Any]:
        """The description as the command line writes it."""
        return {
            "card": format_card(self.card),
            "root": self.card.root,
            "fetched": asdict(self.fetched) if self.fetched else None,
            "prepared": asdict(self.prepared) if self.prepared else None,
        }


def describe_corpus(paths: ProjectPaths, card: Card) -> Description:
    """Say what a corpus is and what is built of it."""
    corpus = paths.corpus(card.id)
    return Description(
        card,
        load_source_record(corpus.raw) if corpus.raw.exists() else None,
        DocumentStore(corpus.documents).load_report() if corpus.documents.exists() else None,
    )


def measure_corpus(
    paths: ProjectPaths, card: Card, *, count_pieces: CountPieces | None
) -> dict[str, Any]:
    """Measure the documents of a prepared corpus, and how a sample of them suits the model."""
    corpus_paths = paths.corpus(card.id)
    store = DocumentStore(corpus_paths.documents)
    report = store.load_report()
    sample = TextSample()
    counts = []
    for document in store.iter_documents():
        sample.add(document)
        counts.append(count_words(document.text))
    lengths = np.array(counts, dtype=np.int64)
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
