from collections.abc import Sequence

import pytest

from cog.errors import EvaluationError
from cog.records import Document
from cog.training.overlap import screen_documents

SHARED = "the old mill stands on the left bank of the river below the bridge"  # 14 words
OTHER = "bread is made from flour and water and salt and sold on the market every week"


def make(name: str, text: str) -> Document:
    return Document(name, name, text, "", "", "")


TRAINING = [
    make("clean", OTHER),
    make("dirty", f"It is said that The Old Mill, {SHARED.removeprefix('the old mill ')}, always."),
    make("short", SHARED.rpartition(" below ")[0]),
]
EVALUATION = [make("test", SHARED), make("tiny", "too short")]


@pytest.mark.parametrize(
    ("evaluation", "action", "names"),
    [
        (EVALUATION, "drop", ["clean", "short"]),
        (EVALUATION, "keep", ["clean", "dirty", "short"]),
        ([], "drop", ["clean", "dirty", "short"]),
        (EVALUATION[1:], "refuse", ["clean", "dirty", "short"]),
    ],
)
def test_document_that_shares_thirteen_words_is_found(
    evaluation: Sequence[Document], action: str, names: list[str]
) -> None:
    passed = screen_documents(TRAINING, evaluation, action=action)
    assert [each.title for each in passed] == names


def test_refusing_names_the_document() -> None:
    with pytest.raises(EvaluationError, match=r"1 of 3 training documents .*: dirty; next: .*drop"):
        list(screen_documents(TRAINING, EVALUATION, action="refuse"))
