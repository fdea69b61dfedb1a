"""The examples of the documentation: made by one script, of the defaults of the day."""

import json
import shlex
from pathlib import Path

from cog.cli.generate import command
from cog.model.fingerprint import fingerprint_model
from cog.params import load_params
from cog.paths import ProjectPaths
from cog.version import __version__
from scripts.picture import BEGIN, END, make_examples, read_settings


def test_examples_are_of_the_defaults_of_the_day(repository: Path) -> None:
    made = json.loads((repository / "docs" / "generate.json").read_text(encoding="utf-8"))
    params = load_params(repository / "params.yaml")
    today = (
        read_settings(repository),
        fingerprint_model(ProjectPaths(repository).model(params.model)),
    )
    run = "make them anew: dvc repro index@wiki-mini index@eu-law-mini && python scripts/picture.py"
    assert (made["generate"], made["model"]) == today, run


def test_script_makes_picture_example_and_record(village: ProjectPaths, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    make_examples(village.root, tmp_path, {"village": "The old mill"})
    text = readme.read_text(encoding="utf-8")
    assert text.startswith(f"before\n{BEGIN}\n```\n$ cog generate --corpus village --prefix")
    assert text.endswith(f"```\n{END}\nafter\n")
    assert "\nThe old mill" in text
    assert "% of the text copied from" in text
    assert "old\n" not in text.replace("The old mill", "")
    picture = (tmp_path / "docs" / "generate.svg").read_text(encoding="utf-8")
    assert "corpus&#160;village" in picture
    made = json.loads((tmp_path / "docs" / "generate.json").read_text(encoding="utf-8"))
    assert made["cog"] == __version__
    assert made["generate"] == read_settings(village.root)
    assert set(made["indexes"]) == {"village"}


def test_commands_of_the_example_are_commands(repository: Path) -> None:
    text = (repository / "README.md").read_text(encoding="utf-8")
    lines = text.split(BEGIN)[1].split(END)[0].split("\n")
    commands = [shlex.split(line)[2:] for line in lines if line.startswith("$ cog ")]
    assert len(commands) == 2
    for name, *words in commands:
        assert name == "generate"
        command.make_context(name, words)
