"""Rep-n and Diversity against values worked out by hand."""

import numpy as np
import pytest

from cog.evaluation.metrics.repetition import (
    combine_diversity,
    measure_repetition,
    score_repetition,
    split_words,
)


def test_words_are_letters_digits_and_single_marks() -> None:
    text = "The mill's 3 wheels (old) -- don’t stop."  # noqa: RUF001
    assert split_words(text) == [
        *("The", "mill's", "3", "wheels", "(", "old", ")", "-", "-", "don’t", "stop", "."),  # noqa: RUF001
    ]


def test_rep_of_a_loop_is_what_the_formula_gives() -> None:
    words = ["a", "b", "a", "b", "a", "b"]
    # 5 bigrams, 2 different; 4 trigrams, 2 different; 3 four-grams, 2 different
    assert score_repetition(words, order=2) == pytest.approx(60.0)
    assert score_repetition(words, order=3) == pytest.approx(50.0)
    assert score_repetition(words, order=4) == pytest.approx(100 / 3)


def test_text_of_fewer_words_than_n_repeats_nothing() -> None:
    assert score_repetition(["a"], order=2) == 0.0
    assert score_repetition([], order=4) == 0.0


def test_diversity_is_the_product_over_the_means() -> None:
    measured = measure_repetition(["a b a b a b", "a b c d e f"])
    assert measured.rep == pytest.approx({2: 30.0, 3: 25.0, 4: 100 / 6})
    assert measured.diversity == pytest.approx(100 * 0.7 * 0.75 * (1 - 1 / 6))
    assert measured.num_texts == 2


def test_diversity_of_the_paper_table_follows_from_its_rep() -> None:
    # CoG, table 1: Rep-2, -3, -4 and Diversity of Transformer and CoG, greedy and nucleus
    rep = [[43.56, 38.55, 35.5], [5.10, 1.33, 0.50], [28.14, 23.80, 21.40], [7.31, 2.66, 1.28]]
    printed = [22.37, 93.22, 43.03, 89.07]
    assert combine_diversity(np.array(rep)).tolist() == pytest.approx(printed, abs=0.1)


def test_no_text_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one text"):
        measure_repetition([])
