from collections.abc import Iterator

import pytest

from cog.errors import EvaluationError
from cog.records import Document
from cog.training.overlap import OverlapScreen

SHARED = "the old mill stands on the left bank of the river below the bridge"  # 14 words
OTHER = "bread is made from flour and water and salt and sold on the market every week"


def make(name: str, text: str) -> Document:
    return Document(name, name, text, "", "", "")


TRAINING = [
    make("clean", OTHER),
    make("dirty", f"It is said that The Old Mill, {SHARED.removeprefix('the old mill ')}, always."),
    make("short", SHARED.rpartition(" below ")[0]),
]


def iter_evaluation() -> Iterator[Document]:
    yield make("test", SHARED)
    yield make("tiny", "too short")


def test_document_that_shares_thirteen_words_is_found() -> None:
    screen = OverlapScreen(iter_evaluation(), action="keep")
    assert list(screen.screen(TRAINING)) == TRAINING
    assert screen.overlap.found == ["dirty"]
    assert (screen.overlap.num_documents, screen.overlap.num_grams) == (3, 2)


def test_dropping_leaves_the_document_out() -> None:
    screen = OverlapScreen(iter_evaluation(), action="drop")
    assert [each.title for each in screen.screen(TRAINING)] == ["clean", "short"]


def test_refusing_names_the_document() -> None:
    screen = OverlapScreen(iter_evaluation(), action="refuse")
    with pytest.raises(EvaluationError, match=r"1 of 3 training documents .*: dirty; next: .*drop"):
        list(screen.screen(TRAINING))


def test_nothing_to_compare_with_lets_all_pass() -> None:
    screen = OverlapScreen([], action="refuse")
    assert list(screen.screen(TRAINING)) == TRAINING
