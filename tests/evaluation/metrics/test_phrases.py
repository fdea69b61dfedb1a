"""Statistics of copies against counts by hand."""

import pytest

from cog.evaluation.metrics.phrases import read_copies, summarise_copies
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


def test_counts_of_one_text() -> None:
    copies = read_copies(FIRST, count_tokens=count_words)
    assert copies.step_tokens == (3, 3, 1, 2, 2)
    assert (copies.num_copied, copies.num_tokens) == (10, 11)
    assert copies.sources == {("village", "one"), ("village", "two")}
    assert copies.longest_run == 6


def test_summary_of_two_texts() -> None:
    found = summarise_copies([read_copies(g, count_tokens=count_words) for g in (FIRST, SECOND)])
    assert found.share_by_length == pytest.approx({1: 3 / 8, 2: 2 / 8, 3: 2 / 8, 4: 0, 5: 0, 6: 0})
    assert found.share_longer == pytest.approx(1 / 8)
    assert found.mean_length == pytest.approx((3 + 3 + 2 + 2 + 7) / 5)
    assert found.variance_of_length == pytest.approx((9 + 9 + 4 + 4 + 49) / 5 - 3.4**2)
    assert found.copied_tokens == pytest.approx(17 / 20)
    assert found.copied_steps == pytest.approx(5 / 8)
    assert (found.sources_per_text, found.num_sources) == (1.5, 2)
    assert (found.longest_run, found.num_texts) == (7, 2)


def test_text_that_copies_nothing() -> None:
    found = summarise_copies([read_copies(generation(token("a"), token("b")), count_tokens=len)])
    assert (found.mean_length, found.variance_of_length, found.copied_tokens) == (0.0, 0.0, 0.0)
    assert found.share_by_length[1] == 1.0
    assert found.longest_run == 0


def test_vocabulary_token_breaks_a_run() -> None:
    apart = generation(copy(" a b", "one", 0), token(" c"), copy(" d e", "one", 4))
    assert read_copies(apart, count_tokens=count_words).longest_run == 2


def test_no_step_is_refused() -> None:
    with pytest.raises(ValueError, match="decoding step"):
        summarise_copies([read_copies(generation(), count_tokens=len)])
