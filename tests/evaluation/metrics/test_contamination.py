"""Contamination against a plain search of word sequences."""

from collections.abc import Iterator

import numpy as np
import pytest

from cog.evaluation.metrics.contamination import SHARE, TEXTS, count_shared
from cog.records import Document

WORDS = [f"w{i}" for i in range(40)]


def document(text: str, document_id: str = "d") -> Document:
    return Document(document_id, "", text, "", "CC0-1.0", "f:1")


def test_shared_run_of_thirteen_words_is_found_whatever_its_spelling() -> None:
    shared = " ".join(WORDS[:13])
    references = ["x " + shared + " y z", " ".join(WORDS[20:40]), "four words only here"]
    texts = [document("Before it. " + shared.upper().replace(" ", ", ") + "; after")]
    rows = count_shared(references, texts)
    # one 13-gram of 16 - 13 + 1
    assert rows.tolist() == [[1, 4, 1, 1], [0, 8, 0, 1], [0, 0, 0, 0]]
    sums = rows.sum(axis=0)[None]
    assert TEXTS.combine(sums)[0] == 0.5
    assert SHARE.combine(sums)[0] == pytest.approx(1 / 12)


def test_twelve_words_are_not_enough() -> None:
    shared = " ".join(WORDS[:12])
    rows = count_shared([shared + " a b"], [document(shared + " c d")])
    assert rows.tolist() == [[0, 2, 0, 1]]


@pytest.mark.parametrize("order", [1, 3, 5])
def test_equals_a_plain_search(order: int) -> None:
    random = np.random.default_rng(order)

    def text(num_words: int) -> str:
        return " ".join(WORDS[i] for i in random.integers(6, size=num_words))

    references = [text(12) for i in range(8)]
    documents = [document(text(15), f"d{i}") for i in range(700)][: 5 if order > 1 else 700]
    known = {
        tuple(words[i : i + order])
        for words in (each.text.split() for each in documents)
        for i in range(len(words) - order + 1)
    }
    wanted = []
    for reference in references:
        words = reference.split()
        grams = [tuple(words[i : i + order]) for i in range(len(words) - order + 1)]
        wanted.append(sum(gram in known for gram in grams))
    assert any(wanted)
    assert count_shared(references, documents, order=order)[:, 0].tolist() == wanted


def test_documents_are_streamed() -> None:
    alive: list[int] = []

    def stream() -> Iterator[Document]:
        for i in range(1000):
            alive.append(i)
            yield document(f"word{i} " * 20)

    assert count_shared(["word999 " * 14], stream())[0, 2] == 1
    assert len(alive) == 1000
