"""``cog study paper``: rows that run are measured, rows that cannot are gaps with reasons."""

import json

from click.testing import CliRunner

from cog.cli.main import cli
from cog.errors import CorpusNotFoundError
from cog.evaluation.paper import SETTINGS
from cog.paths import ProjectPaths

WORDS = ("--memory", "village", "--prompts-of", "village", "--device", "cpu", "--json")
WORDS += ("--metric", "repetition", "--metric", "copies", "--decoding", "greedy")


def test_rows_are_measured_or_gaps_and_are_not_measured_twice(own_village: ProjectPaths) -> None:
    words = ["--project", str(own_village.root), "study", "paper", "--setting", "law-mt"]
    first = CliRunner().invoke(cli, [*words, *WORDS])
    assert first.exception is None, first.exception
    content = json.loads(first.stdout)
    rows = {row["system"]: row for row in content["rows"]}
    assert list(rows) == ["transformer", "transformer-ft", "knn-lm", "retro", "cog"]
    assert {row["decoding"] for row in content["rows"]} == {"greedy"}
    for system in ("transformer", "cog"):
        assert rows[system]["gap"] == ""
        assert 0.0 <= rows[system]["measured"]["diversity"] <= 100.0
        assert rows[system]["measured"]["mauve"] is None
    for system, run in (
        ("transformer-ft", "cog train --objective tokens"),
        ("knn-lm", "cog datastore build village"),
        ("retro", "cog retro train"),
    ):
        assert run in rows[system]["gap"]
        assert set(rows[system]["measured"].values()) == {None}
    assert rows["cog"]["published"] == {"mauve": 21.31, "diversity": 84.32, "perplexity": 10.41}
    assert len(rows["cog"]["phrase_lengths"]) == 6
    assert rows["transformer"]["phrase_lengths"] is None
    assert "Copied from and searched is village, not law-mt." in content["differences"]
    again = CliRunner().invoke(cli, [*words, *WORDS])
    assert json.loads(again.stdout)["rows"] == content["rows"]
    table = CliRunner().invoke(cli, [*words, *(word for word in WORDS if word != "--json")])
    assert "gap: RETRO, greedy: the system retro needs an adapter" in table.stdout
    missing = CliRunner().invoke(cli, [*words, "--memory", "nowhere"])
    assert isinstance(missing.exception, CorpusNotFoundError)


def test_tables_hold_every_system_with_both_decodings() -> None:
    for setting in SETTINGS.values():
        assert len(setting.rows) == 2 * len({row.system for row in setting.rows})
        assert all(set(row.published) == set(setting.columns) for row in setting.rows)
    assert SETTINGS["wikitext103"].rows[-1].published["mauve"] == 26.14
