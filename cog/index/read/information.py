"""What a corpus holds much of: its index goes in; frequent words and telling phrases come out."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cog.corpus.stats import measure_corpus
from cog.corpus.suitability import CountPieces
from cog.errors import AssetError, CheckpointError, IndexingError, IndexNotBuiltError
from cog.index.read.reader import PhraseIndex, open_index
from cog.index.tables.store import WORDS
from cog.index.tables.word_counts import get_form
from cog.model.piece_counts import load_cutter
from cog.model.words import BARRED, CAN_END, CAN_START
from cog.params import load_params
from cog.paths import ProjectPaths
from cog.registry import load_resolved_card

COLUMNS = ("document_ordinal", "word_chars", "word_flags", "word_hashes")
MAX_PHRASE_WORDS = 4
NUM_FREQUENT = 1000  # phrases that are ranked by information
MAX_WORDS = 1 << 19  # from the beginning of the index, so that seconds and memory are bounded


@dataclass(frozen=True, slots=True)
class Phrase:
    """A word or a phrase."""

    text: str  # how it is written; of a word, in lower case
    count: int  # how often it stands in what was read
    bits: float  # its information, the sum of that of its words


@dataclass(frozen=True, slots=True)
class Information:
    """What an index holds much of."""

    index: str
    num_words: int
    num_read: int  # words that were read
    frequent_words: tuple[Phrase, ...]
    # of the most frequent phrases of two to four words, those with the most bits
    most: tuple[Phrase, ...]
    least: tuple[Phrase, ...]  # those with the least


def measure_information(index: PhraseIndex, *, top_k: int = 10) -> Information:
    """Find the most frequent words of an index, and its most and least telling phrases."""
    words, phrases = Counter[str](), Counter[str]()
    bits: dict[str, float] = {}
    places: dict[str, range] = {}  # where a phrase stands first, as numbers of words
    num_read = 0
    for texts, flags, word_bits in _iter_chunks(index):
        for first, last in _iter_spans(flags):
            text = "".join(texts[first:last]).removeprefix(" ")
            text = get_form(text) if last - first == 1 else text
            (words if last - first == 1 else phrases)[text] += 1
            if text not in bits:
                bits[text] = sum(word_bits[first:last])
                places[text] = range(num_read + first, num_read + last)
        num_read += len(texts)
        if num_read >= MAX_WORDS:
            break
    frequent = [text for text, count in phrases.most_common(NUM_FREQUENT) if count > 1]
    frequent.sort(key=bits.__getitem__)

    def describe(counts: Counter[str], chosen: Iterable[str]) -> tuple[Phrase, ...]:
        return tuple(Phrase(each, counts[each], round(bits[each], 2)) for each in chosen)

    return Information(
        index=index.digest,
        num_words=index.num_words,
        num_read=num_read,
        frequent_words=describe(words, (word for word, _ in words.most_common(top_k))),
        most=describe(phrases, _choose(frequent[::-1], places, top_k)),
        least=describe(phrases, _choose(frequent, places, top_k)),
    )


def _iter_chunks(index: PhraseIndex) -> Iterator[tuple[list[str], list[int], list[float]]]:
    # words with their spaces, flags and bits
    (part,) = index.parts
    for batch in part.iter_rows(WORDS, columns=COLUMNS):
        rows = batch.to_pylist()
        documents = index.get_documents(row["document_ordinal"] for row in rows)
        for row in rows:
            text = documents[row["document_ordinal"]].text
            chars = np.frombuffer(row["word_chars"], np.int32).tolist()
            words = [text[a:b] for a, b in zip(chars[:-1], chars[1:], strict=True)]
            hashes = np.frombuffer(row["word_hashes"], np.uint64)
            yield words, list(row["word_flags"]), index.get_word_bits(hashes).tolist()


def _iter_spans(flags: list[int]) -> Iterator[tuple[int, int]]:
    # the words, and the phrases of up to four words
    for first, flag in enumerate(flags):
        if flag & CAN_START:
            yield first, first + 1
            for last in range(first, min(first + MAX_PHRASE_WORDS, len(flags))):
                if flags[last] & BARRED:
                    break
                if last > first and flags[last] & CAN_END:
                    yield first, last + 1


def _choose(phrases: Iterable[str], places: dict[str, range], top_k: int) -> list[str]:
    # of phrases that overlap where they stand first, the first
    chosen: list[str] = []
    taken: set[int] = set()
    for text in phrases:
        if len(chosen) < top_k and taken.isdisjoint(places[text]):
            chosen.append(text)
            taken.update(places[text])
    return chosen


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
