"""Comparisons: what is paired, what is marked, what is refused."""

import json

import numpy as np
import pytest

from cog.errors import EvaluationError, ProtocolError
from cog.evaluation.compare import compare_results, have_same_prompts, make_labels
from tests.evaluation.making import copied, mauve, protocol, rep, result, system

RANDOM = np.random.default_rng(0)
BASE = RANDOM.normal(20, 4, size=40)
NOISE = RANDOM.normal(0, 1, size=40)


def test_the_nearer_to_real_text_is_marked_not_the_lower() -> None:
    reference = (BASE + NOISE / 4).tolist()
    near = result("wiki", [rep((BASE + 0.2 + NOISE / 4).tolist(), reference)])
    low = result("law", [rep((BASE - 15 + NOISE).tolist(), reference)])
    found = compare_results([near, low])
    (pair,) = found.pairs
    assert pair.difference is not None
    assert pair.difference.method == "paired by document"
    assert pair.difference.mean > 10
    assert (pair.better, pair.is_significant) == ("wiki", True)
    assert [row.is_better for row in found.rows] == [True, False]
    assert found.rows[0].reference == pytest.approx(np.mean(reference))


def test_same_scores_on_other_prompts_are_not_paired_and_that_is_said() -> None:
    reference = np.random.default_rng(6).normal(20, 4, size=40).tolist()
    first = result("wiki", [rep((BASE + 2 + NOISE).tolist(), reference)], prompt_corpus="wiki")
    second = result("law", [rep(BASE.tolist(), reference)], prompts_digest="q" * 32)
    found = compare_results([first, second])
    (pair,) = found.pairs
    assert pair.difference is not None
    assert pair.difference.method == "by document"
    assert (pair.better, pair.is_significant) == (None, False)
    assert any("cog paper study domain --corpora wiki,law" in note for note in found.notes)


def test_mauve_is_compared_at_the_number_of_texts_that_both_have() -> None:
    # of equally good texts 200 score higher than 75, by their number alone
    large, small = mauve(140, 200), mauve(52, 75)
    assert (large.num_texts, small.num_texts) == (200, 75)
    found = compare_results(
        [result("wiki", [large]), result("law", [small], prompts_digest="q" * 32)]
    )
    assert [row.num_texts for row in found.rows] == [75, 75]
    assert found.rows[0].mean > large.mean  # its first texts are all alike
    assert "of each the first 75 documents count" in " ".join(found.notes)
    few = compare_results([result("wiki", [mauve(49, 49)]), result("law", [mauve(1, 49)])])
    assert few.pairs[0].difference is None
    assert not any(row.is_better for row in few.rows)


def test_a_score_that_describes_is_never_marked() -> None:
    first = result("wiki", [copied((0.5 + NOISE / 50).tolist())])
    second = result("law", [copied((0.1 + NOISE / 90).tolist())])
    (pair,) = compare_results([first, second]).pairs
    assert (pair.better, pair.is_significant) == (None, True)


def test_many_pairs_are_corrected() -> None:
    # 21 pairs of equal systems: a few low p-values are no news among so many
    random = np.random.default_rng(8)
    columns = random.normal(10, 1, size=(7, 30))
    results = [
        result(f"c{i}", [rep(column.tolist(), [10.0] * 30)]) for i, column in enumerate(columns)
    ]
    found = compare_results(results)
    assert len(found.pairs) == 21
    assert not any(pair.is_significant for pair in found.pairs)


def test_other_protocol_decoder_or_device_is_refused_by_name() -> None:
    first = result("wiki", [rep(BASE.tolist())])
    other = result("law", [rep(BASE.tolist())], protocol=protocol(generation_tokens=64))
    with pytest.raises(ProtocolError, match=r"generation_tokens 16 for wiki, 64 for law"):
        compare_results([first, other])
    for change in ({"decoder": 1}, {"device": "cuda"}):
        (name,) = change
        older = result("law", [rep(BASE.tolist())], system=system("law", **change))
        with pytest.raises(EvaluationError, match=f"one {name} .* for wiki, .* for law"):
            compare_results([first, older])


def test_unknown_score_is_refused_by_name() -> None:
    with pytest.raises(EvaluationError, match=r"score beauty.*only rep-2"):
        compare_results([result("wiki", [rep([1.0])])], metrics=["beauty"])


def test_a_score_that_is_named_twice_is_compared_once() -> None:
    names = ["rep-2", "repetition/rep-2"]
    found = compare_results([result("wiki", [rep([1.0])])], metrics=names)
    assert [row.metric for row in found.rows] == ["repetition/rep-2"]


def test_labels_say_only_what_differs() -> None:
    values = [rep([1.0])]
    own = {"prompt_corpus": "wiki"}

    def of(**changes: object) -> object:
        return result("wiki", values, **own, system=system("wiki", **changes))

    assert make_labels([of()]) == ["wiki"]
    assert make_labels([result("wiki", values), result("law", values)]) == ["wiki", "law"]
    assert make_labels([result("wiki", values, **own), result("law", values)]) == [
        "wiki on wiki",
        "law on village",
    ]
    assert make_labels([of(), of(name="transformer")]) == ["wiki (cog)", "wiki (transformer)"]
    assert make_labels([of(), of(name="retro", training_steps=75)]) == [
        "wiki (cog)",
        "wiki (retro (smoke))",
    ]
    assert make_labels([of(), of(phrase_bias=2.0)]) == [
        "wiki phrase_bias=0.0",
        "wiki phrase_bias=2.0",
    ]
    assert make_labels([of(index=digit * 64) for digit in "ab"]) == [
        "wiki @aaaaaaaa",
        "wiki @bbbbbbbb",
    ]


def test_prompts_are_the_same_only_in_the_same_words() -> None:
    first = result("wiki", [rep([1.0, 2.0])])
    assert have_same_prompts(first, result("law", [rep([1.0, 2.0])]))
    assert not have_same_prompts(first, result("law", [rep([1.0])], prompts_digest="q" * 32))
    assert not have_same_prompts(first, result("law", [rep([1.0, 2.0, 3.0])]))


def test_evaluations_of_unequal_numbers_of_texts_are_compared_by_document() -> None:
    results = [
        result(name, [rep(list(np.linspace(5, 15, num)))])
        for name, num in (("wiki", 20), ("law", 15))
    ]
    comparison = compare_results(results)
    assert [pair.difference and pair.difference.method for pair in comparison.pairs] == [
        "by document"
    ]
    assert comparison.notes[0].startswith("prompts differ")


def test_json_has_what_was_run_and_how_it_was_measured() -> None:
    results = [result("wiki", [mauve(100, 100)]), result("law", [mauve(10, 100)])]
    content = json.loads(json.dumps(compare_results(results).to_json()))
    assert content["protocol"]["digest"] == protocol().digest
    wanted = {"label", "system", "metric", "mean", "low", "high", "reference", "num_documents"}
    assert all(wanted <= set(row) for row in content["rows"])
    assert [row["is_better"] for row in content["rows"]] == [True, False]
    assert content["pairs"][0]["better"] == "wiki"
    assert content["pairs"][0]["difference"]["p_value"] < 0.001


def test_scores_stand_in_the_order_of_their_groups() -> None:
    scores = [copied([0.5] * 60), rep([1.0] * 60), mauve(60, 60)]
    found = compare_results([result("wiki", scores)])
    assert found.metrics == ("quality/mauve", "repetition/rep-2", "copies/tokens")
