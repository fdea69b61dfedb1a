"""Statistics of copies against counts by hand."""

from dataclasses import replace

import numpy as np
import pytest

from cog.evaluation.metrics.copies import METRICS, PLACE, count_copies
from cog.records import CORPUS, VOCABULARY, Decoding, Generation, Segment

DECODING = Decoding("nucleus", 0.95, 0, 16, 16, 0.0)


def copy(text: str, document_id: str, begin: int) -> Segment:
    return Segment(
        text, CORPUS, 0.5, document_id, "A title", begin, begin + len(text), "CC0-1.0", ""
    )


def token(text: str) -> Segment:
    return Segment(text, VOCABULARY, 0.25)


def generation(*segments: Segment) -> Generation:
    text = "".join(segment.text for segment in segments)
    return Generation("A", text, "village", "d", "m", DECODING, len(segments), 0, {}, segments)


def count_words(text: str) -> int:
    return len(text.split())


FIRST = generation(
    copy(" the old mill", "one", 10),
    copy(" on the river", "one", 23),  # goes on where the first ends: a run of 6
    token(","),
    copy(" of the", "two", 5),
    copy(" of the", "two", 40),  # the same document, another place: no run
)
SECOND = generation(token("a"), copy(" one two three four five six seven", "one", 0), token("b"))


def score(*texts: Generation) -> dict[str, float]:
    sums = np.sum([count_copies(each, count_words) for each in texts], axis=0)[None]
    return {each.name.rpartition("/")[2]: float(each.combine(sums)[0]) for each in METRICS}


def test_counts_of_one_text() -> None:
    found = count_copies(FIRST, count_words)
    names = ("copied", "tokens", "sources", "run", "segments", "copies")
    assert [found[PLACE[name]] for name in names] == [10, 11, 2, 6, 5, 4]


def test_scores_of_two_texts() -> None:
    found = score(FIRST, SECOND)
    lengths = [found[f"{n}-gram"] for n in range(1, 7)]
    assert lengths == pytest.approx([3 / 8, 2 / 8, 2 / 8, 0, 0, 0])
    assert found["longer"] == pytest.approx(1 / 8)
    assert found["phrase-length"] == pytest.approx((3 + 3 + 2 + 2 + 7) / 5)
    assert found["words"] == found["phrase-length"]
    assert found["tokens"] == pytest.approx(17 / 20)
    assert found["steps"] == pytest.approx(5 / 8)
    assert found["sources-per-text"] == 1.5
    assert found["longest-run"] == pytest.approx((6 + 7) / 2)
    assert found["tokens-per-step"] == pytest.approx(20 / 8)


def test_text_that_copies_nothing() -> None:
    found = score(generation(token("a"), token("b")))
    assert (found["phrase-length"], found["tokens"], found["longest-run"]) == (0.0, 0.0, 0.0)
    assert found["1-gram"] == 1.0


def test_intervals_stay_within_what_a_share_can_be() -> None:
    rows = np.array([count_copies(each, count_words) for each in (FIRST, SECOND)] * 4)
    rows[0, PLACE["copied"]] = 0.0
    documents = [str(number) for number in range(len(rows))]
    for metric in METRICS:
        found = metric.find_interval(metric.sum_rows(rows, documents))
        assert 0.0 <= found.low <= found.mean <= found.high
        assert found.high <= 1.0 or not metric.name.endswith(("tokens", "steps", "gram", "longer"))


def test_documents_of_two_corpora_that_share_an_id_are_two_sources() -> None:
    parts = copy(" a b", "one", 0), copy(" c d", "one", 4)
    joined = generation(*(replace(each, corpus=id) for each, id in zip(parts, "xy", strict=True)))
    found = count_copies(joined, count_words)
    assert (found[PLACE["sources"]], found[PLACE["run"]]) == (2, 2)


def test_vocabulary_token_breaks_a_run() -> None:
    apart = generation(copy(" a b", "one", 0), token(" c"), copy(" d e", "one", 4))
    assert count_copies(apart, count_words)[PLACE["run"]] == 2
