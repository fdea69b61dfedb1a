"""Blind comparison by people: two evaluations go in, sheets come out; filled ones give a verdict.

As in the paper's human evaluation, a grader sees a prompt and two continuations in random order and
says which is the more fluent, the more informative, and the better one. What gives the systems away
is in the key only, which graders do not get.
"""

import csv
import hashlib
import io
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cog.errors import EvaluationError
from cog.evaluation.compare import have_same_prompts
from cog.evaluation.protocol import check_one_protocol
from cog.evaluation.records import ANY_ERROR, EvaluationResult
from cog.evaluation.statistics import krippendorff_alpha, sign_test

ASKED = {
    "fluency": "Which is more fluent and easier to understand?",
    "informativeness": "Which is more diverse and holds more interesting content?",
    "overall": "Which is better, all in all?",
}
QUESTIONS = tuple(ASKED)
LEFT, RIGHT, NEITHER = "A", "B", "N"
FORMULA_MARKS = ("=", "+", "-", "@", "'")  # what a spreadsheet takes for a formula, and its escape
ANSWERS = (LEFT, RIGHT, NEITHER)
ITEM_COLUMNS = ("item", "prompt", "text_a", "text_b")
KEY_VERSION = 1


@dataclass(frozen=True, slots=True)
class Item:
    """One case of a sheet."""

    item: str
    prompt: str
    text_a: str
    text_b: str


@dataclass(frozen=True, slots=True)
class Key:
    """What a sheet does not say."""

    systems: tuple[str, str]  # their names; results are told from the first one's side
    study: str  # digest of all items, which a whole filled sheet must hold
    first_is_left: dict[str, bool]  # whether the first system's text is on the left, by item
    prompt_ids: dict[str, str]
    protocol: str

    def to_json(self) -> dict[str, Any]:
        """The key as its file holds it."""
        return {"format_version": KEY_VERSION, **asdict(self), "systems": list(self.systems)}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What graders say about a question; every case counts once, by the majority of its graders."""

    question: str  # `fluency`, `informativeness` or `overall`
    num_better: int  # cases where the first system was preferred
    num_neither: int  # those without a preference, graders who cancel out included
    num_worse: int
    p_value: float
    agreement: float | None  # Krippendorff's alpha of the graders; None for one grader
    num_graders: int

    @property
    def num_cases(self) -> int:
        """Number of cases that somebody judged."""
        return self.num_better + self.num_neither + self.num_worse

    def to_json(self) -> dict[str, Any]:
        """The verdict as the command line writes it, with shares as in the paper's table."""
        total = max(1, self.num_cases)
        shares = {
            "better": self.num_better / total,
            "no_preference": self.num_neither / total,
            "worse": self.num_worse / total,
        }
        return {**asdict(self), "num_cases": self.num_cases, **shares}


def make_study(
    first: EvaluationResult,
    second: EvaluationResult,
    *,
    systems: tuple[str, str],
    num_prompts: int,
    seed: int,
) -> tuple[list[Item], Key]:
    """Draw prompts, and shuffle the two continuations of each and the order of all.

    Where more cases are asked for than prompts were continued, prompts come again with the texts
    of the next seed.
    """
    check_one_protocol(zip(systems, (first.protocol, second.protocol), strict=True))
    if not have_same_prompts(first, second):
        raise EvaluationError(
            "graders must see two continuations of the same prompts",
            found=f"{systems[0]} continued {first.prompt_corpus}, {systems[1]} "
            f"{second.prompt_corpus}, or other prompts of it",
            run="cog evaluate both with --prompts-of the same corpus",
        )
    if not (first.seeds and second.seeds):
        name = systems[1] if first.seeds else systems[0]
        raise EvaluationError(
            "graders must see texts",
            found=f"none of {name}: it was evaluated by scores that need none",
            run="cog evaluate it with --metric repetition too",
            about=name,
        )
    pairs = [
        pair
        for own, other in zip(first.seeds, second.seeds, strict=True)
        for pair in zip(own.texts, other.texts, strict=True)
    ]
    if len(pairs) < num_prompts:
        raise EvaluationError(
            f"the evaluations must hold {num_prompts} pairs of texts",
            found=f"{len(pairs)}",
            run=f"pass --prompts {len(pairs)}, or cog evaluate both with more --prompts or --seeds",
        )
    random = np.random.default_rng(seed)
    chosen = _draw(len(first.prompt_ids), len(first.seeds), num=num_prompts, random=random)
    sides = random.permutation(np.arange(num_prompts) % 2 == 0).tolist()  # as often left as right
    items, first_is_left, prompt_ids = [], {}, {}
    for number, (position, is_left) in enumerate(zip(chosen.tolist(), sides, strict=True), start=1):
        own, other = (text.generation.text for text in pairs[position])
        item = f"{number:04d}"
        texts = (own, other) if is_left else (other, own)
        items.append(Item(item, pairs[position][0].generation.prefix, *texts))
        first_is_left[item] = is_left
        prompt_ids[item] = pairs[position][0].prompt_id
    key = Key(systems, digest_items(items), first_is_left, prompt_ids, first.protocol.digest)
    return items, key


def _draw(
    num_prompts: int, num_seeds: int, *, num: int, random: np.random.Generator
) -> NDArray[np.int64]:
    # positions of pairs, seed after seed; every prompt once before any comes again
    if num <= num_prompts:
        return random.permutation(num_prompts)[:num]
    rounds = [k * num_prompts + random.permutation(num_prompts) for k in range(num_seeds)]
    return random.permutation(np.concatenate(rounds)[:num])


def digest_items(items: Sequence[Item]) -> str:
    """Digest the cases of a study, in whatever order they stand."""
    content = json.dumps(sorted(map(astuple, items)))
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def write_sheet(items: Sequence[Item]) -> str:
    """Write the cases as CSV with empty columns for the answers."""
    unanswered = [""] * len(QUESTIONS)
    rows = ([item, *map(_guard, texts), *unanswered] for item, *texts in map(astuple, items))
    return _write_csv((*ITEM_COLUMNS, *QUESTIONS), rows)


def write_answers(key: Key, answers: Mapping[str, Mapping[str, str]]) -> str:
    """Write answers, by item and question, as :func:`read_sheet` reads them."""
    rows = ([i, *(answers.get(i, {}).get(q, "") for q in QUESTIONS)] for i in key.first_is_left)
    return _write_csv(("item", *QUESTIONS), rows)


def _write_csv(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    target = io.StringIO()
    csv.writer(target, lineterminator="\n").writerows([columns, *rows])
    return target.getvalue()


def _read_csv(content: str, *, where: str) -> list[dict[str, str]]:
    source = io.StringIO(content.removeprefix("\ufeff"), newline="")
    try:
        # Strict, as a quote that nothing closes would take in the rows that follow it.
        return list(csv.DictReader(source, restval="", strict=True))
    except csv.Error as error:
        raise EvaluationError(
            f"{where} must be a sheet in CSV",
            found=str(error),
            run="save the exported sheet as CSV in UTF-8",
            about=where,
        ) from error


def read_items(content: str, *, where: str, key: Key) -> list[Item]:
    """Read the cases of a sheet."""
    rows = _read_csv(content, where=where)
    items = _parse_items(rows) if rows and set(ITEM_COLUMNS) <= set(rows[0]) else []
    _check_study(items, where=where, key=key)
    return items


def read_sheet(content: str, *, where: str, key: Key) -> dict[str, dict[str, str]]:
    """Read a filled sheet: answers by item and question, without those left empty.

    Texts may be left out, but if they are there they must be the study's.
    """
    rows = _read_csv(content, where=where)
    missing = {"item", *QUESTIONS} - set(rows[0] if rows else ())
    if missing:
        raise EvaluationError(
            f"{where} must be a filled sheet with the columns item, {', '.join(QUESTIONS)}",
            found=f"no column {min(missing)}" if rows else "no line",
            run="fill the exported sheet, and save it as CSV in UTF-8",
            about=where,
        )
    if set(ITEM_COLUMNS) <= set(rows[0]) and len(rows) == len(key.first_is_left):
        _check_study(_parse_items(rows), where=where, key=key)  # else answers only, or a part
    found: dict[str, dict[str, str]] = {}
    for number, row in enumerate(rows, start=2):
        item = row["item"].strip().zfill(4)  # spreadsheets drop leading zeros
        if item not in key.first_is_left or item in found:
            raise EvaluationError(
                f"{where}, line {number}: every item must be the study's, once",
                found=repr(row["item"]),
                run="use the sheet that belongs to this key",
                about=where,
            )
        found[item] = _read_answers(row, where=f"{where}, line {number}")
    return found


def judge(sheets: Mapping[str, Mapping[str, Mapping[str, str]]], key: Key) -> list[Verdict]:
    """Turn filled sheets into verdicts about the first system.

    Differs from the paper, where graders who disagree talk it over: here the majority decides a
    case, and where there is none it counts as no preference.
    """
    verdicts = []
    for question in QUESTIONS:
        cases = [
            {
                grader: _unblind(answers[item][question], key.first_is_left[item])
                for grader, answers in sheets.items()
                if question in answers.get(item, {})
            }
            for item in key.first_is_left
        ]
        verdicts.append(_judge_question(question, [case for case in cases if case]))
    if not any(verdict.num_cases for verdict in verdicts):
        raise EvaluationError(
            "a filled sheet must hold answers",
            found="none",
            run=f"answer {LEFT}, {RIGHT} or {NEITHER} for each question",
        )
    return verdicts


def parse_key(content: str, *, where: str) -> Key:
    """Read a key."""
    try:
        values = json.loads(content)
        if values.pop("format_version") != KEY_VERSION:
            raise ValueError("another format_version")
        first, second = values.pop("systems")
        return Key(systems=(first, second), **values)
    except ANY_ERROR as error:
        raise EvaluationError(
            f"{where} must be the key that the export wrote",
            found=f"{type(error).__name__}: {error}",
            about=where,
        ) from error


def _parse_items(rows: Sequence[Mapping[str, str]]) -> list[Item]:
    # spreadsheets drop leading zeros
    return [
        Item(row["item"].strip().zfill(4), *(_unguard(row[name]) for name in ITEM_COLUMNS[1:]))
        for row in rows
    ]


def _check_study(items: Sequence[Item], *, where: str, key: Key) -> None:
    if digest_items(items) != key.study:
        raise EvaluationError(
            f"{where} must hold the texts of study {key.study}",
            found="other texts",
            run="use the sheet that belongs to this key, with its texts unchanged",
            about=where,
        )


def _guard(text: str) -> str:
    return "'" + text if text.startswith(FORMULA_MARKS) else text


def _unguard(text: str) -> str:
    # spreadsheets may also write their own line ends, or drop the guard
    text = text.replace("\r\n", "\n")
    return text[1:] if text[:1] == "'" and text[1:].startswith(FORMULA_MARKS) else text


def _read_answers(row: Mapping[str, str], *, where: str) -> dict[str, str]:
    answers = {}
    for question in QUESTIONS:
        answer = row[question].strip().upper()
        if not answer:
            continue
        if answer not in ANSWERS:
            raise EvaluationError(
                f"{where}: {question} must be {LEFT}, {RIGHT}, {NEITHER} or empty",
                found=repr(row[question]),
            )
        answers[question] = answer
    return answers


def _unblind(answer: str, first_is_left: bool) -> int:
    # 1 for the first system, -1 for the second, 0 for neither
    if answer == NEITHER:
        return 0
    return 1 if (answer == LEFT) == first_is_left else -1


def _judge_question(question: str, cases: Sequence[Mapping[str, int]]) -> Verdict:
    outcomes = Counter(_majority(list(case.values())) for case in cases)
    return Verdict(
        question=question,
        num_better=outcomes[1],
        num_neither=outcomes[0],
        num_worse=outcomes[-1],
        p_value=sign_test(outcomes[1], outcomes[-1]),
        agreement=krippendorff_alpha(cases),
        num_graders=len({grader for case in cases for grader in case}),
    )


def _majority(answers: Sequence[int]) -> int:
    counts = Counter(answers)
    (best, most), *others = counts.most_common()
    return 0 if any(count == most for _, count in others) else best
