# SPDX-License-Identifier: MIT
import math
from pathlib import Path

import matplotlib.image
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dnnsuite import plots
from dnnsuite.errors import InvalidArgument

NAN = math.nan


def summary(*rows: tuple[str, str, int, float, float, float]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["mode", "precision", "B", "normalized", "low", "high"])


@pytest.fixture
def axes() -> Axes:
    return Figure().subplots()


def test_curves_markers_and_bands(axes: Axes) -> None:
    rows = [
        ("serial", "fp32", 1, 1.0, 0.9, 1.1),
        ("hfta", "fp32", 4, 3.0, 2.9, 3.1),
        ("hfta", "fp32", 1, 1.2, NAN, NAN),
        ("hfta", "fp32", 8, NAN, NAN, NAN),
        ("concurrent", "fp32", 2, 1.3, 1.2, 1.4),
    ]
    plots.throughput(summary(*rows), axes)
    lines = {
        str(line.get_label()): line for line in axes.get_lines() if not str(line.get_label()).startswith("_")
    }
    assert set(lines) == {"serial fp32", "hfta fp32", "concurrent fp32"}
    assert list(lines["hfta fp32"].get_xdata()) == [1, 4]  # sorted, and only what was measured
    assert lines["hfta fp32"].get_marker() == "o"
    assert lines["serial fp32"].get_color() != lines["hfta fp32"].get_color()
    assert axes.get_xlabel() == "B (models)"
    assert "serial fp32" in axes.get_ylabel()
    assert axes.get_ylim()[0] == 0
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == list(lines)


def test_png_is_whole(axes: Axes, tmp_path: Path) -> None:
    plots.save(plots.throughput(summary(("serial", "fp32", 1, 1.0, NAN, NAN)), axes), tmp_path / "x.png")
    assert [path.name for path in tmp_path.iterdir()] == ["x.png"]
    height, width, channels = matplotlib.image.imread(tmp_path / "x.png").shape
    assert width > height > 500
    assert channels == 4


def test_several_jobs_have_curves_of_their_own(axes: Axes) -> None:
    rows = [("serial", "fp32", 1, 1.0, NAN, NAN), ("hfta", "fp32", 2, 2.0, NAN, NAN)]
    both = pd.concat([summary(*rows).assign(job="bert"), summary(*rows).assign(job="vae")])
    legend = plots.throughput(both, axes).get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [
        "bert serial fp32",
        "bert hfta fp32",
        "vae serial fp32",
        "vae hfta fp32",
    ]


def suite_rates(*rows: tuple[str, float, float, float]) -> pd.DataFrame:
    table = pd.DataFrame(rows, columns=["job", "rate", "rate_low", "rate_high"])
    return table.assign(mode="shares", precision="fp32", B=1, unit="images/s")


def test_rates_of_jobs_with_their_intervals(axes: Axes) -> None:
    plots.rates(suite_rates(("vae", 100.0, 90.0, 1e9), ("reso", 1.0, NAN, NAN), ("ssd", NAN, NAN, NAN)), axes)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["vae (images/s)", "reso (images/s)"]
    assert axes.get_xscale() == "log"
    low, high = axes.get_xlim()
    assert 0 < low < 1 < 100 < high < 1e5  # a wild interval does not flatten the rest


def test_rates_of_nothing(axes: Axes) -> None:
    with pytest.raises(InvalidArgument, match="no run finished"):
        plots.rates(suite_rates(("vae", NAN, NAN, NAN)), axes)


def test_an_svg_is_one_element() -> None:
    figure = Figure()
    figure.subplots()
    assert plots.svg(figure).startswith("<svg")


def test_every_figure_has_one_resolution(axes: Axes, tmp_path: Path) -> None:
    axes.figure.figure.set_size_inches(2, 2)
    plots.save(axes, tmp_path / "x.png")
    assert matplotlib.image.imread(tmp_path / "x.png").shape[1] == pytest.approx(2 * plots.DPI, rel=0.25)


def test_nothing_to_draw(axes: Axes) -> None:
    with pytest.raises(InvalidArgument, match="no serial fp32 run"):
        plots.throughput(summary(("hfta", "fp32", 1, NAN, NAN, NAN)), axes)


def test_a_wide_interval_does_not_flatten_the_curves(axes: Axes) -> None:
    plots.throughput(summary(("hfta", "fp32", 1, 1.0, 0.5, 2.0), ("hfta", "fp32", 2, 2.0, 0.0, 9e4)), axes)
    assert axes.get_ylim() == (0, 3.0)


def load(*rows: tuple[str, str, int, float], metric: str = "busy") -> pd.DataFrame:
    columns = ["job", "mode", "B", "mean", "precision", "of", "metric", "unit"]
    made = pd.DataFrame([(*row, "fp32", "machine", metric, "bytes") for row in rows], columns=columns)
    return made.assign(low=made["mean"] / 2, high=made["mean"] * 9)


def test_load_over_B_and_by_job(axes: Axes) -> None:
    points = [("toy", "serial", 1, 2e9), ("toy", "hfta", 1, 2e9), ("toy", "hfta", 4, 4e9)]
    plots.machine_load(load(*points), axes)
    assert axes.get_legend_handles_labels()[1] == ["serial fp32", "hfta fp32"]
    assert list(axes.get_lines()[1].get_ydata()) == [2.0, 4.0]
    assert axes.get_ylabel() == "machine busy (GB)"
    assert axes.get_ylim() == (0, 6.0)
    by_job = Figure().subplots()
    plots.machine_load(load(("a", "shares", 1, 1e9), ("b", "shares", 1, 2e9)), by_job)
    assert [text.get_text() for text in by_job.get_yticklabels()] == ["a", "b"]
    with pytest.raises(InvalidArgument, match="2 quantities"):
        plots.machine_load(pd.concat([load(points[0]), load(points[0], metric="steal")]), axes)


def test_hftas_table_in_hftas_style() -> None:
    ends = {"avg": [1.0, 2.0], "min": [0.5, 1.0], "max": [2.0, 3.0]}
    table = pd.DataFrame({f"hfta:amp:{end}": values for end, values in ends.items()}, index=[1, 2])
    table = table.assign(**{f"serial:fp32:{end}": [values[0], NAN] for end, values in ends.items()})
    ax = plots.hfta(table, "Normalized Throughput")
    assert ax.get_legend_handles_labels()[1] == ["hfta:amp", "serial:fp32"]
    assert ax.get_ylabel() == "Normalized Throughput"


def test_losses_of_models_alone_and_of_the_array():
    losses = pd.DataFrame(
        {"serial:0.1": [4.0, 2.0, 1.0], "hfta:0.1": [4.0, 2.0, 1.2], "control:0.1": [0.0] * 3}
    )
    ax = plots.convergence(losses, 2, Figure().subplots())
    assert [line.get_label() for line in ax.lines] == ["serial:0.1", "hfta:0.1"]
    assert ax.lines[1].get_xdata().tolist() == [0, 2]
    assert ax.lines[1].get_ydata().tolist() == [3.0, 1.2]
    with pytest.raises(InvalidArgument, match="nothing to draw"):
        plots.convergence(losses[["control:0.1"]], 1, Figure().subplots())


def test_partly_fused_over_the_units_left_unfused():
    table = pd.DataFrame(
        {f"{mode}:fp32{end}": [1.0, 2.0] for mode in ("serial", "hfta") for end in ("", ":low", ":high")},
        index=pd.Index([0, 10], name="serial num"),
    )
    ax = plots.partially_fused(table, Figure().subplots())
    assert [line.get_label() for line in ax.lines] == ["serial fp32", "hfta fp32"]
    assert ax.get_xlabel() == "serial layers"
