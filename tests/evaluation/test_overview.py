"""Overviews: what may be compared stands together, and nothing else does."""

from dataclasses import replace

from cog.evaluation.overview import load_overview
from cog.evaluation.results import save_result
from cog.paths import ProjectPaths
from tests.evaluation.making import metric, protocol, result, whole_metric

SCORES = (metric("repetition/diversity", [80.0 + i % 5 for i in range(12)]),)
COPIES = metric("copies/tokens", [50.0] * 12, higher=None)


def test_groups_are_of_one_protocol_and_the_same_prompts(project: ProjectPaths) -> None:
    village, hamlet = project.corpus("village"), project.corpus("hamlet")
    short = protocol(generation_tokens=8)
    save_result(village, result("village", [*SCORES, COPIES]))
    save_result(village, result("village", SCORES, system="transformer", index=""))
    save_result(village, result("village", SCORES, protocol=short))
    save_result(hamlet, result("hamlet", [*SCORES, COPIES]))
    save_result(hamlet, result("hamlet", SCORES, prompt_corpus="hamlet"))
    (project.corpus("village").evaluations / "torn.json").write_text("{")
    (project.corpora / "stray" / "evaluations").mkdir(parents=True)
    (project.corpora / "stray" / "evaluations" / "x.json").write_text("{}")
    overview = load_overview(project)
    found = [(len(each.results), each.to_json()["prompts"]) for each in overview.groups]
    assert found[0] == (3, "village")
    assert sorted(found[1:]) == [(1, "hamlet"), (1, "village")]
    content = overview.groups[0].to_json()
    assert content["metrics"] == ["repetition/diversity", "copies/tokens"]
    copying = {row["label"] for row in content["rows"] if row["metric"] == "copies/tokens"}
    assert copying == {"hamlet (cog)", "village (cog)"}
    assert [each["is_current"] for each in content["evaluations"] if each["index"]] == [False] * 2
    assert len(content["pairs"]) == 3
    assert overview.problems == ()


def test_what_cannot_be_read_is_a_problem_and_hides_nothing(project: ProjectPaths) -> None:
    assert load_overview(project).groups == ()
    village, hamlet = project.corpus("village"), project.corpus("hamlet")
    save_result(village, result("village", SCORES))
    hamlet.evaluations.mkdir(parents=True)
    (hamlet.evaluations / "old.json").write_text('{"format_version": 0}')
    overview = load_overview(project)
    assert len(overview.groups) == 1
    assert "old.json" in overview.problems[0]


def test_notes_of_scores_are_told_once(project: ProjectPaths) -> None:
    few = replace(whole_metric("quality/mauve", 0.9, 0.1, num_texts=75), note="75 texts: few")
    for system in ("cog", "cog-tokens"):
        save_result(project.corpus("village"), result("village", [few], system=system))
    assert load_overview(project).notes.count("75 texts: few") == 1
