"""Plots: what the bars, intervals and axes really hold."""

from pathlib import Path

import pytest

from cog.errors import EvaluationError
from cog.evaluation.compare import compare_results
from cog.evaluation.comparison import Comparison
from cog.evaluation.plot import BETTER, PLAIN, plot_bars, plot_index_sizes, save_plot
from tests.evaluation.making import result, whole_metric

SIZES = {"en-1pct": 10_000, "en-100pct": 1_000_000, "en-10pct": 100_000}


@pytest.fixture
def comparison() -> Comparison:
    return compare_results(
        [
            result(
                name,
                [
                    whole_metric("quality/mauve", 0.5 + 0.1 * i, 0.02),
                    whole_metric("b/other", 1.0, 0.5),
                ],
                num_index_words=size,
            )
            for i, (name, size) in enumerate(SIZES.items())
        ]
    )


def test_bars_have_the_scores_and_mark_the_better_one(comparison: Comparison) -> None:
    from matplotlib.colors import to_hex

    figure = plot_bars(comparison)
    assert [panel.get_title() for panel in figure.axes] == ["quality/mauve", "b/other"]
    bars = figure.axes[0].patches
    assert [bar.get_height() for bar in bars] == pytest.approx([0.5, 0.6, 0.7])  # type: ignore[attr-defined]
    assert [to_hex(bar.get_facecolor()) for bar in bars] == [PLAIN, PLAIN, BETTER]
    assert all(to_hex(bar.get_facecolor()) == PLAIN for bar in figure.axes[1].patches)
    assert "n = 200" in figure.axes[0].get_xticklabels()[0].get_text()


def test_curve_runs_over_sizes_on_a_logarithmic_axis(comparison: Comparison) -> None:
    panel = plot_index_sizes(comparison).axes[0]
    assert panel.get_xscale() == "log"
    assert panel.lines[0].get_xdata().tolist() == [10_000, 100_000, 1_000_000]
    ticks = [tick.get_text() for tick in panel.get_xticklabels()]
    assert ticks == ["en-1pct\n10 k", "en-10pct\n100 k", "en-100pct\n1 M"]
    assert panel.lines[0].get_ydata().tolist() == pytest.approx([0.5, 0.7, 0.6])


@pytest.mark.parametrize("ending", [".png", ".svg", ".pdf"])
def test_picture_is_written(comparison: Comparison, tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"out{ending}"
    save_plot(plot_bars(comparison), path)
    assert path.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml", b"%PDF-")


def test_other_endings_and_missing_folders_are_refused(
    comparison: Comparison, tmp_path: Path
) -> None:
    with pytest.raises(EvaluationError, match=r"must end in .png.*found: out.jpeg2000"):
        save_plot(plot_bars(comparison), tmp_path / "out.jpeg2000")
    with pytest.raises(EvaluationError, match="folder must be there"):
        save_plot(plot_bars(comparison), tmp_path / "absent" / "out.png")


def test_of_many_scores_the_main_ones_are_drawn() -> None:
    names = [f"copies/{n}-gram" for n in range(1, 8)] + ["perplexity/generated", "quality/mauve"]
    many = compare_results([result("wiki", [whole_metric(name, 1.0, 0.1) for name in names])])
    titles = [panel.get_title() for panel in plot_bars(many).axes]
    assert titles[:3] == ["quality/mauve", "perplexity/generated", "copies/1-gram"]
    assert len(titles) == 6
