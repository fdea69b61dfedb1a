"""``cog compare``: corpus ids go in; a table, JSON, a plot or a page of their scores comes out."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cog.baselines.system import COG
from cog.cli.main import get_project
from cog.cli.options import html_option, json_option, make_type, plot_option
from cog.cli.output import echo_json, make_console, print_table, tell, write_picture, write_texts
from cog.records import Decoding

if TYPE_CHECKING:
    from rich.text import Text

    from cog.evaluation.compare import Comparison, Pair, Row


@click.command("compare")
@click.argument("corpus_ids", metavar="ID...", nargs=-1, required=True)
@click.option(
    "--metric", "metrics", multiple=True, metavar="NAME", help="Only this score, such as mauve."
)
@click.option(
    "--system",
    "systems",
    multiple=True,
    metavar="NAME",
    help="What wrote the texts [default: cog].",
)
@click.option(
    "--decoding",
    "decodings",
    multiple=True,
    type=make_type(Decoding, "method"),
    help="How a choice was taken; given twice, both side by side.",
)
@click.option(
    "--prompts-of", "prompt_corpus", metavar="ID", help="Corpus whose prompts all continued."
)
@click.option("--protocol", metavar="NAME|DIGEST", help="Only evaluations of this protocol.")
@click.option(
    "--index-size", "by_size", is_flag=True, help="Order, and plot, by size of the index."
)
@json_option
@plot_option
@html_option
@click.option(
    "--num-prompts",
    type=click.IntRange(0),
    default=20,
    show_default=True,
    help="Prompts whose texts the page shows.",
)
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    corpus_ids: tuple[str, ...],
    metrics: tuple[str, ...],
    systems: tuple[str, ...],
    decodings: tuple[str, ...],
    prompt_corpus: str | None,
    protocol: str | None,
    by_size: bool,
    as_json: bool,
    plot_path: Path | None,
    html_path: Path | None,
    num_prompts: int,
) -> None:
    """Put the scores of evaluated corpora, or of systems, side by side.

    All evaluations must be of one protocol, decoder and device. A score is marked with * where it
    is better than every other by more than chance; of perplexity, repetition and length that is
    nearer to what really follows. MAUVE is of as many texts each as the smallest has.
    """
    from cog.evaluation.choose import Wish
    from cog.evaluation.planning import compare_wanted
    from cog.evaluation.plot import plot_bars, plot_index_sizes

    sides = [(each, system) for each in corpus_ids for system in systems or (COG,)]
    wish = Wish(tuple(sides), prompt_corpus, protocol, decodings)
    comparison, results = compare_wanted(get_project(ctx), wish, metrics=metrics, by_size=by_size)
    if plot_path:
        draw = plot_index_sizes if by_size else plot_bars
        write_picture(draw(comparison), plot_path)
    if html_path:
        write_texts(comparison, results, html_path, num_prompts=num_prompts)
    if as_json:
        echo_json(comparison.to_json())
    else:
        _print(comparison)


def _print(comparison: "Comparison") -> None:
    protocol = comparison.protocol
    head = f"protocol {protocol.name} {protocol.digest[:12]} · prompts: {comparison.prompts}"
    make_console().print(head, markup=False)
    _print_scores(comparison)
    if any(pair.difference for pair in comparison.pairs):
        click.echo()
        _print_pairs(comparison.pairs)
    for note in comparison.notes:
        tell(note)


def _print_scores(comparison: "Comparison") -> None:
    from rich.table import Column
    from rich.text import Text

    from cog.evaluation.page import format_references

    score = Column("score", min_width=max(map(len, comparison.metrics)))  # told apart at the end
    labels = [Column(label, overflow="fold") for label in comparison.labels]
    rows = [(name, comparison.get_rows(name)) for name in comparison.metrics]
    print_table(
        [score, *labels, "real text"],
        [[name, *map(_format_score, each), format_references(each)] for name, each in rows],
        caption=Text(
            "[low, high]: 95 % interval over documents; n: texts; *: better by more than chance"
        ),
    )


def _print_pairs(pairs: "Sequence[Pair]") -> None:
    from rich.table import Column
    from rich.text import Text

    from cog.evaluation.page import format_number

    rows = []
    for pair in pairs:
        found = pair.difference
        if found is None:
            continue
        interval = f"[{format_number(found.low)}, {format_number(found.high)}]"
        names = f"{pair.first} - {pair.second}"
        difference = f"{format_number(found.mean)} {interval}"
        p_value, better = f"{found.p_value:.2g}", pair.better or ""
        cells = (pair.metric, names, difference, p_value, found.method, better)
        rows.append([Text(cell) for cell in cells])
    score = Column("score", min_width=max(len(pair.metric) for pair in pairs))
    print_table([score, "pair", "difference", "p", "how", "better"], rows)


def _format_score(row: "Row") -> "Text":
    from rich.text import Text

    from cog.evaluation.page import format_interval, format_number

    number = format_number(row.mean) + ("*" if row.is_better else "")
    return Text.assemble(
        (number, "bold green" if row.is_better else ""), (f" {format_interval(row)}", "dim")
    )
