"""Contamination against a plain search of word sequences."""

from collections.abc import Iterator

import numpy as np
import pytest

from cog.evaluation.metrics.contamination import measure_contamination
from cog.records import Document

WORDS = [f"w{i}" for i in range(40)]


def document(text: str, document_id: str = "d") -> Document:
    return Document(document_id, "", text, "", "CC0-1.0", "f:1")


def test_shared_run_of_thirteen_words_is_found_whatever_its_spelling() -> None:
    shared = " ".join(WORDS[:13])
    references = {"hit": "x " + shared + " y z", "miss": " ".join(WORDS[20:40])}
    texts = [document("Before it. " + shared.upper().replace(" ", ", ") + "; after")]
    found = measure_contamination(references, texts)
    assert found.contaminated == {"hit": pytest.approx(1 / 4)}  # one 13-gram of 16 - 13 + 1
    assert found.share_of_texts == 0.5
    assert found.share_of_grams == pytest.approx(1 / (4 + 8))
    assert (found.num_texts, found.num_too_short, found.num_documents) == (2, 0, 1)


def test_twelve_words_are_not_enough() -> None:
    shared = " ".join(WORDS[:12])
    found = measure_contamination({"p": shared + " a b"}, [document(shared + " c d")])
    assert found.contaminated == {}
    assert found.share_of_texts == 0.0


def test_short_references_are_counted_apart() -> None:
    found = measure_contamination({"p": "only four words here", "q": ""}, [document("a")])
    assert (found.num_texts, found.num_too_short) == (0, 2)
    assert (found.share_of_texts, found.share_of_grams) == (0.0, 0.0)


@pytest.mark.parametrize("order", [1, 3, 5])
def test_equals_a_plain_search(order: int) -> None:
    random = np.random.default_rng(order)

    def text(num_words: int) -> str:
        return " ".join(WORDS[i] for i in random.integers(6, size=num_words))

    references = {f"p{i}": text(12) for i in range(8)}
    documents = [document(text(15), f"d{i}") for i in range(700)][: 5 if order > 1 else 700]
    known = {
        tuple(words[i : i + order])
        for words in (each.text.split() for each in documents)
        for i in range(len(words) - order + 1)
    }
    wanted = {}
    for prompt_id, reference in references.items():
        words = reference.split()
        grams = [tuple(words[i : i + order]) for i in range(len(words) - order + 1)]
        share = sum(gram in known for gram in grams) / len(grams)
        if share:
            wanted[prompt_id] = pytest.approx(share)
    assert wanted
    assert measure_contamination(references, documents, order=order).contaminated == wanted


def test_documents_are_streamed() -> None:
    alive: list[int] = []

    def stream() -> Iterator[Document]:
        for i in range(1000):
            alive.append(i)
            yield document(f"word{i} " * 20)

    found = measure_contamination({"p": "word999 " * 14}, stream())
    assert (found.num_documents, len(alive)) == (1000, 1000)
    assert found.share_of_texts == 1.0
