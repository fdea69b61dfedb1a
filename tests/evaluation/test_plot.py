"""Plots: what the bars, intervals and axes really hold."""

from pathlib import Path

import pytest

from cog.errors import EvaluationError
from cog.evaluation.compare import Comparison, compare_results
from cog.evaluation.plot import BETTER, PLAIN, plot_bars, plot_index_sizes, plot_matrix, save_plot
from tests.evaluation.making import mauve, rep, result, score, system

SIZES = {"en-1pct": 10_000, "en-100pct": 999_600, "en-10pct": 100_000}


@pytest.fixture
def comparison() -> Comparison:
    return compare_results(
        [
            result(
                name,
                [mauve(20 + 40 * i, 100), rep([1.0 + j % 5 for j in range(100)], [2.0] * 100)],
                system=system(name, num_index_words=size),
            )
            for i, (name, size) in enumerate(SIZES.items())
        ]
    )


def test_bars_have_the_scores_and_mark_the_better_one(comparison: Comparison) -> None:
    from matplotlib.colors import to_hex

    figure = plot_bars(comparison)
    assert [panel.get_title() for panel in figure.axes] == ["quality/mauve", "repetition/rep-2"]
    bars = figure.axes[0].patches
    heights = [bar.get_height() for bar in bars]  # type: ignore[attr-defined]
    assert heights == sorted(heights)
    assert heights[-1] == pytest.approx(1.0)
    assert [to_hex(bar.get_facecolor()) for bar in bars] == [PLAIN, PLAIN, BETTER]
    assert all(to_hex(bar.get_facecolor()) == PLAIN for bar in figure.axes[1].patches)
    assert "n = 100" in figure.axes[0].get_xticklabels()[0].get_text()


def test_curve_runs_over_sizes_on_a_logarithmic_axis(comparison: Comparison) -> None:
    panel = plot_index_sizes(comparison).axes[0]
    assert panel.get_xscale() == "log"
    assert panel.lines[0].get_xdata().tolist() == [10_000, 100_000, 999_600]
    ticks = [tick.get_text() for tick in panel.get_xticklabels()]
    assert ticks == ["en-1pct\n10 k", "en-10pct\n100 k", "en-100pct\n1 M"]
    values = panel.lines[0].get_ydata().tolist()
    assert values[0] < values[2] < values[1]


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
    names = [f"copies/{n}-gram" for n in range(1, 7)]
    scores = [score(name, [[1.0] * 16] * 9) for name in names]
    scores += [score("perplexity/generated", [[-3.0, 1.0]] * 9, [[-2.0, 1.0]] * 9), mauve(9, 9)]
    many = compare_results([result("wiki", scores)])
    titles = [panel.get_title() for panel in plot_bars(many).axes]
    assert titles[:3] == ["quality/mauve", "perplexity/generated", "copies/1-gram"]
    assert len(titles) == 6


def test_matrix_has_a_row_per_set_of_prompts(comparison: Comparison) -> None:
    panel = plot_matrix([comparison, comparison], "quality/mauve").axes[0]
    assert [tick.get_text() for tick in panel.get_xticklabels()] == list(SIZES)
    assert [tick.get_text() for tick in panel.get_yticklabels()] == ["village"] * 2
    assert len(panel.texts) == 6
    assert panel.texts[2].get_text() == "1*"
