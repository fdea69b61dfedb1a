"""What commands print: values, lines, tables and files go in; all of them come out alike."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure
    from rich.console import Console
    from rich.table import Column
    from rich.text import Text

    from cog.baselines.retro.job import RetroReport
    from cog.evaluation.compare import Comparison
    from cog.evaluation.records import EvaluationResult
    from cog.training.job import TrainReport

TABLE_COLUMNS = 200  # where there is no terminal, so that no cell is folded


def echo_json(content: object, *, indent: int | None = None) -> None:
    """Print a JSON-ready value."""
    click.echo(json.dumps(content, ensure_ascii=False, indent=indent))


def echo_result(content: object, text: str, *, as_json: bool) -> None:
    """Print a result: a JSON-ready value for programs, or the text for people."""
    if as_json:
        echo_json(content)
    else:
        click.echo(text)


def tell(line: str) -> None:
    """Tell a person something beside the result, on standard error."""
    click.echo(f"cog: {line}", err=True)


def format_lines(lines: Mapping[str, object]) -> str:
    """Values below each other, each after its name."""
    return "\n".join(f"{name:<10} {value}" for name, value in lines.items())


def echo_outcome(report: "TrainReport | RetroReport") -> None:
    """Print what a training run was, and its last measurements."""
    click.echo(f"{report.folder} · {report.steps} steps · {report.num_tokens:,} tokens")
    for name, value in {**report.metrics, **report.validation}.items():
        click.echo(f"{name:36} {value:9.4f}")


def make_console() -> "Console":
    """Make what prints tables."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = TABLE_COLUMNS
    return console


def print_table(
    columns: "Sequence[str | Column]",
    rows: "Iterable[Sequence[str | Text]]",
    *,
    title: str | None = None,
    caption: "str | Text | None" = None,
) -> None:
    """Print a table without lines, between what it is of and what its marks mean."""
    from rich.table import Table

    table = Table(*columns, box=None, pad_edge=False, header_style="bold", title=title)
    for row in rows:
        table.add_row(*row)
    table.caption, table.caption_justify = caption, "left"
    make_console().print(table)


def write_picture(figure: "Figure", path: "Path") -> None:
    """Write a picture of --plot, and say so."""
    from cog.evaluation.plot import save_plot

    save_plot(figure, path)
    tell(f"wrote {path}")


def write_texts(
    comparison: "Comparison",
    results: "Iterable[EvaluationResult]",
    path: "Path",
    *,
    num_prompts: int,
) -> None:
    """Write the page of --html with scores and texts, and say so."""
    from cog.atomic import write_text_atomically
    from cog.evaluation.page import write_page

    write_text_atomically(path, write_page(comparison, [*results], num_prompts=num_prompts))
    tell(f"wrote {path}")
