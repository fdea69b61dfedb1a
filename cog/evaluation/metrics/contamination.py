"""Contamination: references and the indexed documents go in, the n-grams they share come out."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from cog.records import Document

ORDER = 13  # as GPT-3 and its successors count contamination
WORD = re.compile(r"\w+")
BASE = np.uint64(0x9E3779B97F4A7C15)
MAX_KNOWN_WORDS = 1_000_000  # words whose hash is kept; bounds memory
DOCUMENTS_PER_LOOKUP = 256


@dataclass(frozen=True, slots=True)
class Shares:
    """The shares alone.

    :param of_texts: Share of references with at least one n-gram in the index.
    :param of_grams: Share of all n-grams of all references that are in the index.
    :param num_texts: Number of references of at least n words.
    """

    of_texts: float
    of_grams: float
    num_texts: int


@dataclass(frozen=True, slots=True)
class Contamination:
    """How much of the references also stands in the index.

    :param order: The n of the n-grams.
    :param share_of_texts: Share of references with at least one n-gram in the index.
    :param share_of_grams: Share of all n-grams of all references that are in the index.
    :param contaminated: Ids of the references with at least one, and the share of their n-grams.
    :param num_texts: Number of references of at least n words.
    :param num_too_short: Number of references of fewer than n words, which have no n-gram.
    :param num_documents: Number of documents looked through.
    """

    order: int
    share_of_texts: float
    share_of_grams: float
    contaminated: dict[str, float]
    num_texts: int
    num_too_short: int
    num_documents: int


class GramHasher:
    """Hashes the n-grams of texts; case, marks and spacing do not count.

    :param order: The n.
    """

    def __init__(self, order: int) -> None:
        self._order = order
        self._known: dict[str, int] = {}

    def hash_text(self, text: str) -> NDArray[np.uint64]:
        """Hash every n-gram of a text.

        :param text: The text.
        :returns: Hashes in order; empty below n words. *Shape:* ``(num_words - n + 1,)``
        """
        words = WORD.findall(text.lower())
        num_grams = len(words) - self._order + 1
        if num_grams <= 0:
            return np.zeros(0, dtype=np.uint64)
        hashes = np.array([self._hash_word(word) for word in words], dtype=np.uint64)
        grams = np.zeros(num_grams, dtype=np.uint64)
        for i in range(self._order):
            grams = grams * BASE + hashes[i : i + num_grams]  # wraps, as hashes do
        return grams

    def _hash_word(self, word: str) -> int:
        found = self._known.get(word)
        if found is None:
            digest = hashlib.blake2b(word.encode(errors="surrogatepass"), digest_size=8).digest()
            found = int.from_bytes(digest, "little")
            if len(self._known) < MAX_KNOWN_WORDS:
                self._known[word] = found
        return found


def measure_contamination(
    references: Mapping[str, str], documents: Iterable[Document], *, order: int = ORDER
) -> Contamination:
    """Look for the references' n-grams in the documents of an index.

    :param references: Reference texts by prompt id.
    :param documents: The indexed documents; streamed, a few hundred held at once.
    :param order: The n.
    :returns: What was found.
    """
    hasher = GramHasher(order)
    grams = {prompt_id: hasher.hash_text(text) for prompt_id, text in references.items()}
    wanted = _join(list(grams.values()))
    is_found = np.zeros(len(wanted), dtype=bool)
    num_documents = 0
    source = iter(documents)
    while batch := list(islice(source, DOCUMENTS_PER_LOOKUP)):
        num_documents += len(batch)
        if len(wanted):
            present = _join([hasher.hash_text(document.text) for document in batch])
            is_found |= np.isin(wanted, present)
    return _report(grams, wanted[is_found], order=order, num_documents=num_documents)


def _join(arrays: Sequence[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    return np.unique(np.concatenate(arrays)) if arrays else np.zeros(0, dtype=np.uint64)


def _report(
    grams: Mapping[str, NDArray[np.uint64]],
    found: NDArray[np.uint64],
    *,
    order: int,
    num_documents: int,
) -> Contamination:
    hits = {prompt_id: np.isin(each, found) for prompt_id, each in grams.items() if len(each)}
    num_grams = sum(len(each) for each in hits.values())
    contaminated = {prompt_id: float(each.mean()) for prompt_id, each in hits.items() if each.any()}
    return Contamination(
        order=order,
        share_of_texts=len(contaminated) / len(hits) if hits else 0.0,
        share_of_grams=sum(int(each.sum()) for each in hits.values()) / max(1, num_grams),
        contaminated=contaminated,
        num_texts=len(hits),
        num_too_short=len(grams) - len(hits),
        num_documents=num_documents,
    )
