"""Counts of a corpus with those of its index: a project and an id go in, figures come out."""

from dataclasses import asdict, dataclass
from typing import Any

from cog.corpus.stats import measure_corpus
from cog.corpus.suitability import CountPieces
from cog.errors import AssetError, CheckpointError, IndexingError, IndexNotBuiltError
from cog.index.read.information import Information, measure_information
from cog.index.read.reader import open_index
from cog.model.piece_counts import load_cutter
from cog.params import load_params
from cog.paths import ProjectPaths
from cog.registry import load_resolved_card


@dataclass(frozen=True, slots=True)
class CorpusStats:
    """What was counted."""

    figures: dict[str, Any]  # of the documents, as plain values by name
    # of the index in place, whatever documents it was built from; None if there is none, or it
    # cannot be read
    information: Information | None
    notes: tuple[str, ...]  # what could not be counted, and why

    def to_json(self) -> dict[str, Any]:
        """The counts as the command line writes them."""
        told = asdict(self.information) if self.information else None
        return self.figures | {"information": told}


def measure_stats(paths: ProjectPaths, corpus_id: str) -> CorpusStats:
    """Count documents and words of a prepared corpus, and the words of its index."""
    card = load_resolved_card(paths, corpus_id)
    notes: list[str] = []
    figures = measure_corpus(paths, card, count_pieces=_load_piece_counter(paths, notes))
    information = _measure_index(paths, corpus_id, notes)
    return CorpusStats(figures, information, tuple(notes))


def _load_piece_counter(paths: ProjectPaths, notes: list[str]) -> CountPieces | None:
    # counts are worth having without the model too
    try:
        return load_cutter(paths.model(load_params(paths.params).model)).count
    except (AssetError, CheckpointError) as error:
        notes.append(f"tokens are not counted: {error}")
        return None


def _measure_index(paths: ProjectPaths, corpus_id: str, notes: list[str]) -> Information | None:
    try:
        with open_index(paths.corpus(corpus_id)) as index:
            return measure_information(index)
    except IndexNotBuiltError:
        return None
    except IndexingError as error:
        notes.append(f"words of the index are not counted: {error}")
        return None
