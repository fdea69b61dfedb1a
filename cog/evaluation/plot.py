"""Plots: a comparison goes in, bars or a curve over index sizes come out as a picture."""

import io
from collections.abc import Sequence
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING

from cog.errors import EvaluationError
from cog.evaluation.compare import Comparison, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
MAX_PANELS = 6
TOLD_FIRST = (
    "likelihood/per-word",
    "quality/mauve",
    "repetition/diversity",
    "perplexity/generated",
    "copies/tokens",
    "latency/tokens-per-second",
)
COLUMNS = 3
PLAIN, BETTER, INK = "#8fa3b8", "#2b6cb0", "#1f2933"


def plot_bars(comparison: Comparison) -> "Figure":
    """Draw a panel of bars per score, with 95 % intervals; of more than six scores the main ones.

    A bar is dark where it is better than every other by more than chance.
    """
    figure, panels = _make_panels(comparison, width=1.1 + 1.1 * len(comparison.labels))
    for name, panel, rows in panels:
        positions = range(len(rows))
        panel.bar(
            positions,
            [row.mean for row in rows],
            yerr=_error_bars(rows),
            color=[BETTER if row.is_better else PLAIN for row in rows],
            ecolor=INK,
            capsize=4,
            error_kw={"linewidth": 1.2},
            width=0.62,
        )
        for place, row in zip(positions, rows, strict=True):
            if row.reference is not None:  # what really follows has this score
                panel.plot([place - 0.4, place + 0.4], [row.reference] * 2, ":", color=INK, lw=1.4)
        panel.set_xticks(list(positions), [_tick(row) for row in rows], fontsize=8)
        _finish_panel(panel, name)
    meaning = "bars: 95 % intervals; dark: better by more than chance; dots: real text"
    _caption(figure, comparison, meaning)
    return figure


def plot_systems(comparison: Comparison) -> "Figure":
    """Draw a panel of lying bars per score, one bar per system, with 95 % intervals.

    A bar is dark where it differs from the first by more than chance.
    """
    height = 1.0 + 0.24 * len(comparison.labels)
    figure, panels = _make_panels(comparison, width=4.2, height=height)
    for name, panel, rows in panels:
        other = {
            pair.second for pair in comparison.pairs if pair.metric == name and pair.is_significant
        }
        positions = range(len(rows))
        panel.barh(
            positions,
            [row.mean for row in rows],
            xerr=_error_bars(rows),
            color=[BETTER if row.label in other else PLAIN for row in rows],
            ecolor=INK,
            height=0.7,
        )
        panel.set_yticks(list(positions), [row.label for row in rows], fontsize=8)
        panel.invert_yaxis()
        _finish_panel(panel, name)
        panel.grid(axis="x", linewidth=0.5, alpha=0.5)
    _caption(figure, comparison, "bars: 95 % intervals; dark: unlike the first by more than chance")
    return figure


def plot_index_sizes(comparison: Comparison) -> "Figure":
    """Draw each score over the number of words in the index, as in the paper's figure 3."""
    figure, panels = _make_panels(comparison, width=4.2)
    for name, panel, rows in panels:
        rows.sort(key=lambda row: row.system.num_index_words)
        sizes = [max(1, row.system.num_index_words) for row in rows]
        panel.errorbar(
            sizes,
            [row.mean for row in rows],
            yerr=_error_bars(rows),
            color=BETTER,
            marker="o",
            markersize=5,
            capsize=4,
            linewidth=1.6,
        )
        panel.set_xscale("log")
        panel.margins(x=0.18)
        panel.minorticks_off()
        panel.set_xticks(
            sizes, [f"{row.label}\n{_shorten(row.system.num_index_words)}" for row in rows]
        )
        panel.set_xlabel("units in the index", fontsize=9)
        _finish_panel(panel, name)
    _caption(figure, comparison, f"bars: 95 % intervals over {_count_texts(comparison.rows)} texts")
    return figure


def plot_matrix(comparisons: Sequence[Comparison], name: str) -> "Figure":
    """Draw a score of every index on every set of prompts, a row per set."""
    from matplotlib.figure import Figure

    rows = [comparison.get_rows(name) for comparison in comparisons]
    size = 1.6 + 1.1 * len(rows)
    figure = Figure(figsize=(size + 1.0, size), layout="constrained")
    panel = figure.subplots()
    panel.imshow([[row.mean for row in line] for line in rows], cmap="Blues", aspect="auto")
    for y, line in enumerate(rows):
        for x, row in enumerate(line):
            mark = "*" if row.is_better else ""
            panel.text(x, y, f"{row.mean:.3g}{mark}", ha="center", va="center", color=INK)
    panel.set_xticks(range(len(rows[0])), [row.system.corpus for row in rows[0]], fontsize=8)
    panel.set_yticks(range(len(rows)), [line[0].prompt_corpus for line in rows], fontsize=8)
    panel.set_xlabel("index", fontsize=9)
    panel.set_ylabel("prompts", fontsize=9)
    panel.set_title(name, fontsize=10, color=INK)
    counts = _count_texts([row for line in rows for row in line])
    meaning = f"{counts} texts; *: better on these prompts by more than chance"
    _caption(figure, comparisons[0], meaning)
    return figure


def draw(figure: "Figure") -> bytes:
    """A figure as a PNG file."""
    target = io.BytesIO()
    figure.savefig(target, format="png", dpi=160, metadata={})
    return target.getvalue()


def save_plot(figure: "Figure", path: Path) -> None:
    """Write a figure to a file, whose ending says the format."""
    check_plot_path(path)
    try:
        figure.savefig(path, dpi=160, metadata={})
    except OSError as error:
        raise EvaluationError(
            "the plot's folder must be there and writable",
            found=f"{path}: {error.strerror}",
            about=str(path),
        ) from error


def check_plot_path(path: Path) -> None:
    """Refuse a file name that is none of a picture before anything is computed."""
    if path.suffix.lower() not in FORMATS:
        raise EvaluationError(
            f"a plot must end in {', '.join(FORMATS)}",
            found=path.name,
            run=f"pass --plot {path.stem or 'comparison'}.png",
            about=str(path),
        )


def _make_panels(
    comparison: Comparison, *, width: float, height: float = 3.1
) -> tuple["Figure", list[tuple[str, "Axes", list[Row]]]]:
    # each with its score
    from matplotlib.figure import Figure

    names = comparison.metrics
    if len(names) > MAX_PANELS:
        first = [name for name in TOLD_FIRST if name in names]
        names = tuple(dict.fromkeys((*first, *names)))[:MAX_PANELS]
    num_panels = len(names)
    columns = min(COLUMNS, max(1, num_panels))
    lines = -(-num_panels // columns)
    figure = Figure(figsize=(max(4.0, width * columns), height * lines + 0.6), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False).ravel().tolist()
    for spare in axes[num_panels:]:
        spare.set_axis_off()
    return figure, [(name, axes[i], comparison.get_rows(name)) for i, name in enumerate(names)]


def _error_bars(rows: Sequence[Row]) -> list[list[float]]:
    # no caps where there is no interval
    ends = [(r.mean - r.low, r.high - r.mean) if r.low < r.high else (nan, nan) for r in rows]
    return [list(end) for end in zip(*ends, strict=True)]


def _count_texts(rows: Sequence[Row]) -> str:
    return " or ".join(f"{count:,}" for count in sorted({row.num_texts for row in rows}))


def _tick(row: Row) -> str:
    return f"{row.label.replace(' ', chr(10))}\nn = {row.num_texts:,}"


def _shorten(count: int) -> str:
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if count >= 0.9995 * size:  # what rounds to the next unit is told in that
            return f"{count / size:.3g} {unit}"
    return str(count)


def _finish_panel(panel: "Axes", name: str) -> None:
    panel.set_title(name, fontsize=10, color=INK)
    panel.spines[["top", "right"]].set_visible(False)
    panel.tick_params(labelsize=8)
    panel.grid(axis="y", linewidth=0.5, alpha=0.5)
    panel.set_axisbelow(True)


def _caption(figure: "Figure", comparison: Comparison, meaning: str) -> None:
    protocol = comparison.protocol
    text = f"protocol {protocol.name} {protocol.digest[:12]} · {meaning}"
    figure.supxlabel(text, fontsize=7, color="#66717d")
