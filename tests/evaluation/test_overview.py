"""Overviews: what may be compared stands together, and nothing else does."""

from dataclasses import replace

import pytest

from cog.errors import EvaluationError
from cog.evaluation.choose import Wish, choose_results
from cog.evaluation.overview import load_overview
from cog.paths import ProjectPaths
from tests.evaluation.making import copied, mauve, protocol, rep, result, save, system

SCORES = (rep([10.0 + i % 5 for i in range(12)]),)
COPIES = copied([0.5] * 12)


def test_groups_are_of_one_protocol_and_the_same_prompts(project: ProjectPaths) -> None:
    short = protocol(generation_tokens=8)
    save(project, result("village", [*SCORES, COPIES]))
    save(
        project,
        result(
            "village", SCORES, system=system("village", name="transformer", index="", documents="")
        ),
    )
    save(project, result("village", SCORES, protocol=short))
    save(project, result("hamlet", [*SCORES, COPIES]))
    save(project, result("hamlet", SCORES, prompt_corpus="hamlet"))
    (project.corpus("village").evaluations / "torn.json").write_text("{")
    (project.corpora / "stray" / "evaluations").mkdir(parents=True)
    (project.corpora / "stray" / "evaluations" / "x.json").write_text("{}")
    overview = load_overview(project)
    found = [(len(each.results), each.to_json()["prompts"]) for each in overview.groups]
    assert found[0] == (3, "village")
    assert sorted(found[1:]) == [(1, "hamlet"), (1, "village")]
    content = overview.groups[0].to_json()
    assert content["metrics"] == ["repetition/rep-2", "copies/tokens"]
    copying = {row["label"] for row in content["rows"] if row["metric"] == "copies/tokens"}
    assert copying == {"hamlet (cog)", "village (cog)"}
    assert [each["is_current"] for each in content["evaluations"] if each["index"]] == [False] * 2
    assert len(content["pairs"]) == 3
    assert overview.problems == ()


def test_what_cannot_be_read_is_a_problem_and_hides_nothing(project: ProjectPaths) -> None:
    assert load_overview(project).groups == ()
    hamlet = project.corpus("hamlet")
    save(project, result("village", SCORES))
    hamlet.evaluations.mkdir(parents=True)
    (hamlet.evaluations / "old.json").write_text('{"format_version": 0}')
    overview = load_overview(project)
    assert len(overview.groups) == 1
    assert "left as it is" in overview.problems[0]


def test_the_command_that_evaluates_what_lacks_has_its_prompts_and_protocol(
    project: ProjectPaths,
) -> None:
    save(project, result("village", SCORES))
    wish = Wish((("village", "transformer"),), "hamlet", "paper-iclr2023", ("greedy",))
    wanted = "--prompts-of hamlet --system transformer --decoding greedy --protocol paper-iclr2023"
    with pytest.raises(EvaluationError) as caught:
        choose_results(project, wish)
    assert caught.value.run == f"cog evaluate --corpus village {wanted}"
    with pytest.raises(EvaluationError) as caught:
        choose_results(project, Wish((("village", "cog"),), "village", "0123"))
    assert caught.value.run == "cog evaluate --corpus village"


def test_notes_of_scores_are_told_once(project: ProjectPaths) -> None:
    few = replace(mauve(60, 75), note="75 texts: few")
    for name in ("cog", "cog-phrases"):
        save(project, result("village", [few], system=system("village", name=name)))
    assert load_overview(project).notes.count("75 texts: few") == 1
