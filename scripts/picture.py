"""Make the examples of the documentation from the defaults of the day.

The indexes of two small corpora go in; the picture ``docs/generate.svg``, the example in
``README.md`` and ``docs/generate.json``, which says what made them, come out:
``dvc repro index@wiki-mini index@eu-law-mini && python scripts/picture.py``
"""

import io
import json
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from cog.cli.main import cli
from cog.cli.render import Screen, render_generation
from cog.evaluation.records import parse_generation
from cog.params import load_params
from cog.records import Generation
from cog.version import __version__

PREFIXES = {
    "wiki-mini": "The Baltic Sea is",
    "eu-law-mini": "The provider of a high-risk AI system shall",
}
WIDTH = 100
BEGIN, END = "<!-- made by scripts/picture.py -->", "<!-- to here -->"


def read_settings(project: Path) -> dict[str, Any]:
    """The decoding settings that examples are of: section ``generate`` of params.yaml."""
    settings: dict[str, Any] = json.loads(
        json.dumps(asdict(load_params(project / "params.yaml").generate))
    )
    return settings


def show_command(
    console: Console, project: Path, *words: str, max_sources: int | None = None
) -> Generation:
    """Run ``cog generate`` and print it as a terminal would show it."""
    output = io.StringIO()
    with redirect_stdout(output):  # what was tuned here is nobody's default
        cli.main(
            ["--project", str(project), "generate", *words, "--untuned", "--json"],
            standalone_mode=False,
        )
    generation = parse_generation(json.loads(output.getvalue()))
    told = [] if max_sources is None else ["--sources", str(max_sources)]
    command = " ".join(f'"{word}"' if " " in word else word for word in (*words, *told))
    console.print(Text(f"$ cog generate {command}", "dim"), soft_wrap=True)
    for part in render_generation(generation, Screen(WIDTH, None, max_sources)):
        console.print(part)
    return generation


def make_examples(project: Path, out: Path, prefixes: Mapping[str, str]) -> None:
    """Write picture, example and what made them.

    :param project: Where the indexes are.
    :param out: Where ``README.md`` and ``docs/`` are.
    :param prefixes: What is continued with which corpus.
    """
    picture = Console(record=True, width=WIDTH, file=io.StringIO(), highlight=False)
    example = Console(width=WIDTH, file=io.StringIO(), highlight=False)
    made = []
    for corpus_id, prefix in prefixes.items():
        words = ("--corpus", corpus_id, "--prefix", prefix)
        if made:
            picture.print()
            example.print()
        made.append(show_command(picture, project, *words))
        show_command(example, project, *words, "--max-new-tokens", "64", max_sources=3)
    svg = picture.export_svg(title="cog: the same model, another corpus")
    write_lines(out / "docs" / "generate.svg", svg)
    readme = (out / "README.md").read_text(encoding="utf-8")
    before, after = readme.split(BEGIN)[0], readme.split(END)[1]
    text = example.file.getvalue()
    write_lines(out / "README.md", f"{before}{BEGIN}\n```\n{text}```\n{END}{after}")
    record = {
        "cog": __version__,
        "model": made[0].model,
        "indexes": {generation.corpus: generation.index for generation in made},
        "generate": read_settings(project),
    }
    write_lines(out / "docs" / "generate.json", json.dumps(record, indent=2))


def write_lines(path: Path, text: str) -> None:
    """Write a text file without blanks at the ends of lines."""
    lines = [line.rstrip() for line in text.splitlines()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    root = Path(__file__).parents[1]
    make_examples(root, root, PREFIXES)
