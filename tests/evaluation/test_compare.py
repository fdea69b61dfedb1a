"""Comparisons: what is paired, what is marked, what is refused."""

import json
from dataclasses import replace

import numpy as np
import pytest

from cog.errors import EvaluationError, ProtocolError
from cog.evaluation.compare import compare_results, have_same_prompts, make_labels
from cog.evaluation.records import EvaluationResult
from tests.evaluation.making import metric, protocol, result, text, whole_metric

RANDOM = np.random.default_rng(0)
BASE = RANDOM.normal(50, 10, size=40)
NOISE = RANDOM.normal(0, 1, size=40)


def test_difference_on_the_same_prompts_is_paired_and_marked() -> None:
    first = result("wiki", [metric("repetition/rep-2", (BASE + 2 + NOISE).tolist(), higher=False)])
    second = result("law", [metric("repetition/rep-2", BASE.tolist(), higher=False)])
    found = compare_results([first, second])
    (pair,) = found.pairs
    assert pair.difference is not None
    assert pair.difference.method == "paired bootstrap"
    assert pair.difference.mean == pytest.approx(2 + NOISE.mean())
    assert pair.difference.win_rate == pytest.approx((NOISE < -2).mean())  # how often it is lower
    assert (pair.better, pair.is_significant) == ("law", True)  # the lower is the better
    assert [row.is_better for row in found.rows] == [False, True]


def test_same_scores_on_other_prompts_are_not_paired() -> None:
    values = (BASE + 2 + NOISE).tolist()
    first = result("wiki", [metric("repetition/rep-2", values, higher=False)], prompt_corpus="wiki")
    second = result("law", [metric("repetition/rep-2", BASE.tolist(), higher=False)])
    found = compare_results([first, second])
    (pair,) = found.pairs
    assert pair.difference is not None
    assert (pair.difference.method, pair.difference.win_rate) == ("bootstrap", None)
    assert (pair.better, pair.is_significant) == (None, False)
    assert not any(row.is_better for row in found.rows)


def test_mauve_is_compared_by_its_intervals() -> None:
    def pair_of(gap: float, half: float) -> tuple[str | None, bool]:
        first = result("wiki", [whole_metric("quality/mauve", 0.8, half)])
        second = result("law", [whole_metric("quality/mauve", 0.8 - gap, half)])
        (pair,) = compare_results([first, second], metrics=["mauve"]).pairs
        return pair.better, pair.is_significant

    assert pair_of(0.10, 0.05) == ("wiki", True)
    assert pair_of(0.05, 0.05) == (None, False)
    assert pair_of(0.10, 0.0) == (None, False)  # an interval of no width is no certainty


def test_score_that_describes_is_never_marked() -> None:
    first = result("wiki", [metric("copies/tokens", (BASE + 9 + NOISE).tolist(), higher=None)])
    second = result("law", [metric("copies/tokens", BASE.tolist(), higher=None)])
    (pair,) = compare_results([first, second]).pairs
    assert (pair.better, pair.is_significant) == (None, True)


def test_many_pairs_are_corrected() -> None:
    # 21 pairs of equal systems; the smallest p-value is 0.02, which is no news among so many
    random = np.random.default_rng(8)
    columns = random.normal(0, 1, size=(7, 30))
    results = [
        result(f"c{i}", [metric("repetition/rep-2", column.tolist())])
        for i, column in enumerate(columns)
    ]
    found = compare_results(results)
    assert len(found.pairs) == 21
    assert min(pair.difference.p_value for pair in found.pairs if pair.difference) < 0.05
    assert not any(pair.is_significant for pair in found.pairs)


def test_perplexity_is_averaged_as_logarithms() -> None:
    logs = RANDOM.normal(3, 0.5, size=40)
    mean = float(np.exp(logs.mean()))

    def perplexity(shift: float, corpus: str, noise: np.ndarray) -> EvaluationResult:
        values = np.exp(logs + shift + noise).tolist()
        made = metric("perplexity/generated", values, higher=False)
        return result(corpus, [replace(made, mean=mean * float(np.exp(shift)))])

    noise = NOISE / 20
    found = compare_results([perplexity(0.1, "wiki", noise), perplexity(0.0, "law", 0 * noise)])
    difference = found.pairs[0].difference
    assert difference is not None
    assert difference.mean == pytest.approx(mean * (np.exp(0.1) - 1))
    assert difference.low < difference.mean < difference.high
    assert found.pairs[0].better == "law"


def test_other_protocol_is_refused_by_field() -> None:
    first = result("wiki", [metric("repetition/rep-2", BASE.tolist())])
    second = result(
        "law",
        [metric("repetition/rep-2", BASE.tolist())],
        protocol=protocol(generation_tokens=64),
    )
    with pytest.raises(ProtocolError, match=r"generation_tokens 16 for wiki, 64 for law"):
        compare_results([first, second])


def test_unknown_score_is_refused_by_name() -> None:
    with pytest.raises(EvaluationError, match=r"score beauty.*only rep-2"):
        compare_results([result("wiki", [metric("repetition/rep-2", [1.0])])], metrics=["beauty"])


def test_labels_say_only_what_differs() -> None:
    values = [metric("repetition/rep-2", [1.0])]
    own = {"prompt_corpus": "wiki"}
    assert make_labels([result("wiki", values, **own)]) == ["wiki"]
    assert make_labels([result("wiki", values), result("law", values)]) == ["wiki", "law"]
    assert make_labels([result("wiki", values, **own), result("law", values)]) == [
        "wiki on wiki",
        "law on village",
    ]
    twins = [result("wiki", values, **own, system=name) for name in ("cog", "transformer")]
    assert make_labels(twins) == ["wiki (cog)", "wiki (transformer)"]
    rebuilt = [result("wiki", values, **own, index=digit * 64) for digit in "ab"]
    assert make_labels(rebuilt) == ["wiki @aaaaaaaa", "wiki @bbbbbbbb"]


def test_prompts_are_the_same_only_in_the_same_words() -> None:
    values = [metric("repetition/rep-2", [1.0, 2.0])]
    first = result("wiki", values)
    other_ids = tuple(text(f"q{i}", corpus="law") for i in range(2))
    from cog.evaluation.records import SeedResult

    assert have_same_prompts(first, result("law", values))
    assert not have_same_prompts(first, result("law", values, seeds=(SeedResult(0, other_ids),)))


def test_json_has_the_promised_keys() -> None:
    results = [
        result(corpus, [whole_metric("quality/mauve", mean, 0.01)])
        for corpus, mean in (("wiki", 0.9), ("law", 0.5))
    ]
    content = json.loads(json.dumps(compare_results(results).to_json()))
    assert content["protocol"] == protocol().digest
    wanted = {"corpus", "index", "metric", "mean", "low", "high", "num_texts"}
    assert all(wanted <= set(row) for row in content["rows"])
    assert [row["is_better"] for row in content["rows"]] == [True, False]
    assert content["pairs"][0]["better"] == "wiki"
    assert content["pairs"][0]["difference"]["p_value"] < 0.001


def test_texts_of_a_batch_count_once_for_latency() -> None:
    def latency(corpus: str, seconds: list[float]) -> EvaluationResult:
        values = np.repeat(seconds, 2).tolist()  # two texts a batch, as the protocol says
        return result(corpus, [metric("latency/decode", values, higher=False)])

    few = compare_results([latency("wiki", [2.0, 2.1, 2.2]), latency("law", [1.0, 1.1, 1.3])])
    assert few.pairs[0].difference is None
    assert not few.pairs[0].is_significant
    many = RANDOM.normal(2, 0.3, size=20)
    found = compare_results(
        [latency("wiki", (many + 0.5).tolist()), latency("law", many[::-1].tolist())]
    )
    again = compare_results(
        [
            result("wiki", [metric("m/x", (many + 0.5).tolist(), higher=False)]),
            result("law", [metric("m/x", many[::-1].tolist(), higher=False)]),
        ]
    )
    one, other = found.pairs[0].difference, again.pairs[0].difference
    assert one is not None
    assert other is not None
    assert (one.low, one.high, one.p_value) == pytest.approx((other.low, other.high, other.p_value))


def test_difference_without_spread_is_no_certainty() -> None:
    first = result("wiki", [metric("m/x", [3.0] * 8), metric("m/y", [1.0] * 8)])
    second = result("law", [metric("m/x", [2.0] * 8), metric("m/y", [1.0] * 8)])
    unknown, equal = compare_results([first, second]).pairs
    assert unknown.difference is None
    assert equal.difference is not None
    assert (equal.difference.p_value, equal.better) == (1.0, None)


def test_mauve_of_few_texts_is_never_marked() -> None:
    results = [
        result(corpus, [whole_metric("quality/mauve", mean, 0.01, num_texts=49)])
        for corpus, mean in (("wiki", 0.9), ("law", 0.2))
    ]
    found = compare_results(results)
    assert found.pairs[0].difference is None
    assert not any(row.is_better for row in found.rows)


def test_scores_stand_in_the_order_of_their_groups() -> None:
    names = ["copies/tokens", "x/y", "repetition/rep-2", "quality/mauve"]
    found = compare_results([result("wiki", [whole_metric(name, 1.0, 0.1) for name in names])])
    assert found.metrics == ("quality/mauve", "repetition/rep-2", "copies/tokens", "x/y")
