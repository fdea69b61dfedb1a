"""Blind studies at rest: what a folder of the project holds, and what it refuses."""

import threading
from pathlib import Path

import pytest

from cog.errors import EvaluationError
from cog.evaluation.blind import Item, Key, digest_items, judge, read_sheet
from cog.evaluation.study_folder import Study, list_studies, save_study
from cog.paths import ProjectPaths

ITEMS = [Item(f"{i:04d}", f"=Prompt {i}", f"-one {i}", f"two\n{i}") for i in range(1, 9)]
KEY = Key(
    ("village", "other"),
    digest_items(ITEMS),
    {each.item: True for each in ITEMS},
    {each.item: "p" for each in ITEMS},
    "d" * 64,
)


@pytest.fixture
def study(project: ProjectPaths) -> Study:
    save_study(project.studies / KEY.study, ITEMS, KEY)
    assert list_studies(project) == [KEY.study]
    return Study(project, KEY.study)


def test_answers_are_kept_taken_back_and_counted_as_from_a_spreadsheet(
    study: Study, project: ProjectPaths
) -> None:
    assert study.load_items() == ITEMS
    anna = study.add_rater("  Anna   <b> ")
    assert study.add_rater("Anna <b>") == anna
    assert study.find_rater(anna.token) == anna
    for wrong in (anna.token + "x", "", "é", "\ud800"):
        assert study.find_rater(wrong) is None
    for item in ("0001", "0002"):
        study.answer(anna, item=item, question="overall", answer="A")
    study.answer(anna, item="0002", question="overall", answer="B")
    study.answer(anna, item="0003", question="fluency", answer="N")
    assert study.answer(anna, item="0003", question="fluency", answer=None)["0003"] == {}
    wanted = {"0001": {"overall": "A"}, "0002": {"overall": "B"}}
    again = Study(project, study.name)
    assert again.load_raters() == [anna]
    assert again.load_answers(anna) == wanted
    (sheet,) = (project.studies / study.name / "answers").glob("*.csv")
    read = read_sheet(sheet.read_text(), where=sheet.name, key=study.key)
    verdict = judge({"anna": read}, study.key)[2]
    assert (verdict.num_better, verdict.num_worse, verdict.num_neither) == (1, 1, 0)


def test_answers_given_at_the_same_time_are_all_kept(study: Study) -> None:
    anna = study.add_rater("anna")

    def answer(item: Item) -> None:
        for question in ("fluency", "overall"):
            study.answer(anna, item=item.item, question=question, answer="B")

    threads = [threading.Thread(target=answer, args=(item,)) for item in ITEMS]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    wanted = {item.item: {"fluency": "B", "overall": "B"} for item in ITEMS}
    assert study.load_answers(anna) == wanted


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"item": "../../x"}, "item must be the study's"),
        ({"question": "taste"}, "question must be the study's"),
        ({"answer": "C"}, "answer must be the study's"),
    ],
)
def test_answers_to_what_was_not_asked_are_refused(
    study: Study, changes: dict[str, str], message: str
) -> None:
    given = {"item": "0001", "question": "overall", "answer": "A"} | changes
    with pytest.raises(EvaluationError, match=message):
        study.answer(study.add_rater("anna"), **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", " ", "x" * 65, "a\x00b", "a\u202eb"])
def test_names_that_are_none_are_refused(study: Study, name: str) -> None:
    with pytest.raises(EvaluationError, match="a rater's name"):
        study.add_rater(name)


@pytest.mark.parametrize(
    ("content", "found"),
    [("{", "Expecting property name"), ("[]", "list"), ('{"anna": 3, "ben": "x"}', "anna")],
)
def test_a_damaged_list_of_raters_is_told(
    study: Study, project: ProjectPaths, content: str, found: str
) -> None:
    path = project.studies / study.name / "raters.json"
    path.write_text(content)
    with pytest.raises(EvaluationError) as caught:
        study.add_rater("anna")
    assert found in caught.value.found
    assert path.read_text() == content


@pytest.mark.parametrize("name", ["..", "../registry", "", "/etc", "none"])
def test_studies_that_are_not_there_are_refused(project: ProjectPaths, name: str) -> None:
    with pytest.raises(EvaluationError, match="a study must be one of studies/"):
        Study(project, name)


def test_study_is_not_written_over(study: Study, project: ProjectPaths) -> None:
    folder = project.studies / study.name
    with pytest.raises(EvaluationError, match="key must not be lost"):
        save_study(folder, ITEMS, KEY)
    save_study(folder, ITEMS, KEY, is_forced=True)
    (folder / "sheet.csv").write_text((folder / "sheet.csv").read_text().replace("two", "three"))
    with pytest.raises(EvaluationError, match="texts of study"):
        study.load_items()


def test_export_lies_where_the_page_finds_it(project: ProjectPaths, tmp_path: Path) -> None:
    save_study(tmp_path / "elsewhere", ITEMS, KEY)
    assert list_studies(project) == []
