"""The limit of verbatim runs: exact, over copies that follow each other and what lies between."""

from dataclasses import replace

import pytest

from cog.decoding.generator import CopyGenerator
from cog.decoding.request import Request
from cog.decoding.text import Copy, GrowingText
from cog.decoding.verbatim import Run, find_runs
from cog.records import CORPUS, Decoding, Generation

TEXTS = {0: "one two three four five six", 1: "two three and four five"}
GREEDY = Decoding("nucleus", 0.95, 0, 48, 16, 6.0)


def write(*parts: tuple[str, int | None]) -> GrowingText:
    """A text of copies (text and document) and of vocabulary tokens (text and None)."""
    text = GrowingText()
    for words, document in parts:
        if document is None:
            text.append_token(words.encode(), probability=1.0)
        else:
            copy = Copy(document, TEXTS[document].index(words))
            text.append_copy(words.encode(), copy, probability=1.0)
    return text


@pytest.mark.parametrize(
    ("parts", "runs"),
    [
        ([], []),
        ([(" two", None)], []),
        ([(" two three", 0)], [Run(0, 3, 13)]),
        ([(" two", 0), (" three", 0)], [Run(0, 3, 13)]),
        ([(" two", 0), (" three", None), (" four", 0)], [Run(0, 3, 18)]),
        ([(" two", 0), (" three", None)], [Run(0, 3, 13)]),
        ([(" two", 0), (" thirty", None)], []),
        ([(" two", 0), (" four", 0)], [Run(0, 13, 18)]),
        ([(" four", 0), (" three", 0)], [Run(0, 7, 13)]),
        ([("two three", 1), (" four", 0)], [Run(0, 13, 18)]),
        ([(" three", 0), (" four five", 1)], [Run(1, 13, 23), Run(0, 7, 23)]),
    ],
)
def test_runs_of_a_text(parts: list[tuple[str, int | None]], runs: list[Run]) -> None:
    found = find_runs(write(*parts), TEXTS.__getitem__, max_chars=100)
    assert sorted(found, key=str) == sorted(runs, key=str)


def test_runs_are_followed_back_only_so_far() -> None:
    text = write((" two", 0), (" three", 0), (" four", 0), (" five", 0))
    assert find_runs(text, TEXTS.__getitem__, max_chars=100) == [Run(0, 3, 23)]
    assert find_runs(text, TEXTS.__getitem__, max_chars=6) == [Run(0, 13, 23)]


def longest_run(generator: CopyGenerator, generation: Generation) -> int:
    """Words of the longest run of copies that follow each other in their document."""
    longest, run, end, document = 0, "", -1, None
    for segment in generation.segments:
        if segment.origin != CORPUS:
            document = None
            continue
        is_next = (segment.document_id, segment.char_start) == (document, end)
        run = run + segment.text if is_next else segment.text
        document, end = segment.document_id, segment.char_end
        longest = max(longest, generator.model.splitter.split(run).num_words)
    return longest


@pytest.mark.parametrize("prefix", ["The old mill", "The council of", "Bread is"])
@pytest.mark.parametrize("max_words", [2, 3, 9])
def test_no_run_is_longer_than_the_limit(
    generator: CopyGenerator, prefix: str, max_words: int
) -> None:
    (free,) = generator.generate([Request(prefix, GREEDY)])
    limited = Request(prefix, replace(GREEDY, max_verbatim_words=max_words))
    (held,) = generator.generate([limited])
    assert longest_run(generator, held) <= max_words
    assert any(segment.origin == CORPUS for segment in held.segments)
    assert longest_run(generator, free) > 2  # the limit has something to do


def test_a_limit_that_nothing_reaches_changes_nothing(generator: CopyGenerator) -> None:
    texts = [
        generator.generate([Request("The old", replace(GREEDY, max_verbatim_words=limit))])[0]
        for limit in (0, 10_000)
    ]
    assert texts[0].segments == texts[1].segments
