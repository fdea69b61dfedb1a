"""Text and examples for the tests of training."""

from collections.abc import Iterator
from pathlib import Path

from cog.progress import SilentProgress
from cog.records import Document
from cog.training.building import ExampleSettings, TrainingText, build_examples
from cog.training.examples import ExampleStore

PHRASES = (
    "the council of the upper village",
    "on the proposal of the old miller",
    "in accordance with the rules of the market",
    "the left bank of the winding river",
    "after the great flood of that spring",
    "every third Thursday before the noon bell",
)
NAMES = ("Anna", "Bruno", "Clara", "David", "Emma", "Felix", "Greta", "Hugo")
VERBS = ("met", "painted", "measured", "left", "described", "crossed", "sold", "heard")


def iter_village(num_documents: int, *, num_sentences: int = 6) -> Iterator[Document]:
    """Documents in which the same phrases stand again and again, each between other words.

    :param num_documents: Number of documents.
    :param num_sentences: Number of sentences of each.
    :yields: Documents.
    """
    for number in range(num_documents):
        sentences = []
        for place in range(num_sentences):
            key = number * num_sentences + place
            name, verb = NAMES[key % 8], VERBS[(key // 8 + number) % 8]
            first, second = PHRASES[key % 6], PHRASES[(key + 1 + number % 3) % 6]
            sentences.append(f"{name} {verb} {first} and wrote {key} letters {second}.")
        yield Document(f"d{number}", f"Title {number}", " ".join(sentences), "", "", f"t:{number}")


def make_settings(model: Path, *, max_chunk_tokens: int = 48) -> ExampleSettings:
    """Settings for the bases of a tiny model.

    :param model: Its folder.
    :param max_chunk_tokens: Number of tokens of a chunk, at most.
    :returns: The settings.
    """
    return ExampleSettings(model / "prefix", model / "phrase", max_chunk_tokens, 8, 126)


def make_store(model: Path, folder: Path, *, num_documents: int = 12) -> ExampleStore:
    """Examples of a village.

    :param model: Folder of a tiny model.
    :param folder: Where to.
    :param num_documents: Number of documents.
    :returns: The examples.
    """
    return build_examples(
        TrainingText(lambda: iter_village(num_documents), f"village-{num_documents}"),
        settings=make_settings(model),
        folder=folder,
        num_workers=0,
        progress=SilentProgress(),
    )
