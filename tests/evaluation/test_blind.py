"""Blind studies: nothing gives the systems away, and answers come back as what was meant."""

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cog.errors import EvaluationError, ProtocolError
from cog.evaluation.blind import (
    NEITHER,
    QUESTIONS,
    Item,
    Key,
    digest_items,
    judge,
    make_study,
    parse_key,
    read_items,
    read_sheet,
    write_sheet,
)
from cog.evaluation.records import EvaluationResult, SeedResult
from tests.evaluation.making import protocol, result, text

SYSTEMS = ("wiki-mini", "eu-law-mini")
NUM_PROMPTS = 30


def evaluation(corpus: str, words: str, **changes: Any) -> EvaluationResult:  # noqa: ANN401
    texts = []
    for i in range(NUM_PROMPTS):
        made = text(f"p{i}", corpus=corpus)
        texts.append(
            replace(made, generation=replace(made.generation, text=f" {words} goes on, {i}"))
        )
    about = {"prompt_ids": tuple(each.prompt_id for each in texts)}
    return result(corpus, [], seeds=(SeedResult(0, tuple(texts)),), **about, **changes)


@pytest.fixture
def study() -> tuple[list[Item], Key]:
    return make_study(
        evaluation("wiki-mini", "=one"),
        evaluation("eu-law-mini", "two"),
        systems=SYSTEMS,
        num_prompts=20,
        seed=0,
    )


def fill(items: list[Item], answer: Callable[[Item], str]) -> str:
    """A sheet as a spreadsheet saves it: a mark at its head, its own line ends."""
    rows = list(csv.DictReader(io.StringIO(write_sheet(items))))
    for row, item in zip(rows, items, strict=True):
        row.update(dict.fromkeys(QUESTIONS, answer(item)))
        row["item"] = row["item"].lstrip("0")
    target = io.StringIO()
    writer = csv.DictWriter(target, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return "\ufeff" + target.getvalue()


def prefers_one(item: Item) -> str:
    return "A" if "one" in item.text_a else "b"


def test_texts_are_shuffled_and_balanced(study: tuple[list[Item], Key]) -> None:
    items, key = study
    assert sum(key.first_is_left.values()) == 10
    for item in items:
        left, right = item.text_a, item.text_b
        own, other = (left, right) if key.first_is_left[item.item] else (right, left)
        number = key.prompt_ids[item.item][1:]
        assert (own, other) == (f" =one goes on, {number}", f" two goes on, {number}")
        assert item.prompt == f"Prompt p{number}"
    order = [int(each[1:]) for each in key.prompt_ids.values()]
    assert order != sorted(order)
    assert len(set(order)) == 20


def test_same_seed_gives_the_same_study_and_another_does_not() -> None:
    def make(seed: int) -> Key:
        sides = (evaluation("wiki-mini", "one"), evaluation("eu-law-mini", "two"))
        return make_study(*sides, systems=SYSTEMS, num_prompts=20, seed=seed)[1]

    assert make(1) == make(1)
    assert make(1).study != make(2).study


def test_nothing_gives_the_systems_away(study: tuple[list[Item], Key]) -> None:
    items, key = study
    sheet = write_sheet(items)
    secrets = [*SYSTEMS, "d" * 12, "m" * 12, "cog", "nucleus", "CC0", "doc-1", key.protocol[:8]]
    for secret in secrets:
        assert secret.lower() not in sheet.lower(), secret
    # which text is on the left tells nothing: the same words around both
    swapped = [Item(i.item, i.prompt, i.text_b, i.text_a) for i in items]
    strip = re.compile(r" (=one|two) goes on")
    assert strip.sub("", sheet) == strip.sub("", write_sheet(swapped))


def test_sheet_keeps_texts_that_a_spreadsheet_takes_for_formulas() -> None:
    items = [Item("0001", "=1+1", "'quoted'", "-\nwith a line")]
    key = Key(SYSTEMS, digest_items(items), {"0001": True}, {"0001": "p"}, "d")
    sheet = write_sheet(items)
    assert read_items(sheet, where="sheet.csv", key=key) == items
    filled = sheet.replace(",,,", ",A,B,N")
    assert read_sheet(filled, where="a.csv", key=key)["0001"]["overall"] == "N"
    with pytest.raises(EvaluationError, match="texts of study"):
        read_items(sheet.replace("line", "word"), where="sheet.csv", key=key)


def test_more_cases_than_prompts_take_the_texts_of_the_next_seed() -> None:
    sides = []
    for corpus, words in (("wiki-mini", "one"), ("eu-law-mini", "two")):
        first, second = (evaluation(corpus, f"{words} {seed}") for seed in "ab")
        sides.append(replace(first, seeds=(*first.seeds, replace(second.seeds[0], seed=1))))
    items, key = make_study(*sides, systems=SYSTEMS, num_prompts=40, seed=0)
    assert len(items) == 40
    assert set(key.prompt_ids.values()) == {f"p{i}" for i in range(NUM_PROMPTS)}
    assert len({(item.text_a, item.text_b) for item in items}) == 40
    seeds = [re.findall(r" (?:one|two) (a|b) goes", item.text_a + item.text_b) for item in items]
    assert sorted(map("".join, seeds)) == ["aa"] * 30 + ["bb"] * 10  # both sides of one seed
    assert seeds != sorted(seeds)
    once, _ = make_study(*sides, systems=SYSTEMS, num_prompts=30, seed=0)
    assert not any(" b goes on" in item.text_a for item in once)


def test_answers_come_back_as_what_was_meant(study: tuple[list[Item], Key]) -> None:
    items, key = study
    for first, wanted in ((prefers_one, (20, 0, 0)), (lambda _: NEITHER, (0, 20, 0))):
        answers = read_sheet(fill(items, first), where="anna.csv", key=key)
        for verdict in judge({"anna": answers}, key):
            assert (verdict.num_better, verdict.num_neither, verdict.num_worse) == wanted
            assert verdict.p_value == pytest.approx(2 / 2**20 if wanted[0] else 1.0)
            assert verdict.agreement is None


def test_grader_who_always_says_left_prefers_nobody(study: tuple[list[Item], Key]) -> None:
    items, key = study
    verdict = judge({"g": read_sheet(fill(items, lambda _: "A"), where="g", key=key)}, key)[0]
    assert (verdict.num_better, verdict.num_worse, verdict.p_value) == (10, 10, 1.0)


def test_majority_decides_and_agreement_is_told(study: tuple[list[Item], Key]) -> None:
    items, key = study
    ones = read_sheet(fill(items, prefers_one), where="a", key=key)
    twos = read_sheet(
        fill(items, lambda item: "B" if prefers_one(item) == "A" else "A"), where="b", key=key
    )
    verdict = judge({"a": ones, "b": ones, "c": twos}, key)[2]
    assert (verdict.question, verdict.num_better, verdict.num_graders) == ("overall", 20, 3)
    assert verdict.agreement == pytest.approx(1 - (59 * 40 / (60**2 - 40**2 - 20**2)))
    opposed = judge({"a": ones, "c": twos}, key)[0]
    assert opposed.num_neither == 20
    assert judge({"a": ones, "b": ones}, key)[0].agreement is None  # nor can chance be told


def test_part_of_a_sheet_counts_what_it_holds(study: tuple[list[Item], Key]) -> None:
    key = study[1]
    content = "item,fluency,informativeness,overall\n0003,A,,n\n"
    verdicts = judge({"g": read_sheet(content, where="g.csv", key=key)}, key)
    assert [verdict.num_cases for verdict in verdicts] == [1, 0, 1]
    assert verdicts[2].num_neither == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "no line"),
        ("item,fluency\n0001,A\n", "no column informativeness"),
        ("item,fluency,informativeness,overall\n9999,A,A,A\n", "line 2: every item"),
        ("item,fluency,informativeness,overall\n1,A,A,A\n0001,A,A,A\n", "line 3: every item"),
        ("item,fluency,informativeness,overall\n1,A,C,A\n", "line 2: informativeness must be"),
    ],
)
def test_malformed_sheets_are_refused(
    study: tuple[list[Item], Key], content: str, message: str
) -> None:
    with pytest.raises(EvaluationError, match=message):
        read_sheet(content, where="g.csv", key=study[1])


def test_sheet_of_another_study_is_refused(study: tuple[list[Item], Key]) -> None:
    items, key = study
    other = [replace(items[0], text_a="changed"), *items[1:]]
    with pytest.raises(EvaluationError, match="texts of study"):
        read_sheet(fill(other, prefers_one), where="g.csv", key=key)


def test_a_sheet_that_was_cut_off_or_has_an_open_quote_is_refused(
    study: tuple[list[Item], Key],
) -> None:
    items, key = study
    sheet = write_sheet(items)
    last = items[-1].item
    cut = sheet[: sheet.index(f"\n{last}") + 1 + len(last)]
    quoted = sheet.replace(items[3].prompt, f'"{items[3].prompt}', 1)
    for content, message in ((cut, "texts of study"), (quoted, "must be a sheet in CSV")):
        for read in (read_items, read_sheet):
            with pytest.raises(EvaluationError, match=message):
                read(content, where="g.csv", key=key)


def test_empty_sheets_are_refused(study: tuple[list[Item], Key]) -> None:
    items, key = study
    with pytest.raises(EvaluationError, match="must hold answers"):
        judge({"g": read_sheet(write_sheet(items), where="g", key=key)}, key)


def test_systems_that_cannot_be_compared_are_refused() -> None:
    first = evaluation("wiki-mini", "one")
    with pytest.raises(EvaluationError, match="must hold 31 pairs of texts; found: 30"):
        make_study(first, first, systems=SYSTEMS, num_prompts=31, seed=0)
    without = replace(evaluation("eu-law-mini", "two"), seeds=())  # as of --metric likelihood
    for sides, name in (((first, without), SYSTEMS[1]), ((without, without), SYSTEMS[0])):
        with pytest.raises(EvaluationError, match=f"must see texts; found: none of {name}"):
            make_study(*sides, systems=SYSTEMS, num_prompts=5, seed=0)
    foreign = evaluation("eu-law-mini", "two", prompt_corpus="eu-law-mini")
    with pytest.raises(EvaluationError, match="same prompts"):
        make_study(first, foreign, systems=SYSTEMS, num_prompts=5, seed=0)
    longer = evaluation("eu-law-mini", "two", protocol=protocol(generation_tokens=32))
    with pytest.raises(ProtocolError, match="generation_tokens"):
        make_study(first, longer, systems=SYSTEMS, num_prompts=5, seed=0)


def test_key_round_trips_and_others_are_refused(study: tuple[list[Item], Key]) -> None:
    key = study[1]
    assert parse_key(json.dumps(key.to_json()), where="key.json") == key
    for content in ("", "[]", "{}", json.dumps({**key.to_json(), "format_version": 9})):
        with pytest.raises(EvaluationError, match=r"key\.json must be the key"):
            parse_key(content, where="key.json")
