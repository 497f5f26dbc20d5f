# SPDX-License-Identifier: MIT
import math

import pandas as pd
import pytest
from matplotlib.axes import Axes

from dnnsuite import plots
from dnnsuite.errors import InvalidArgument

NAN = math.nan


def summary(*rows: tuple[str, str, int, float, float, float]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["mode", "precision", "B", "normalized", "low", "high"])


def test_curves_markers_and_bands(axes: Axes) -> None:
    rows = [
        ("serial", "fp32", 1, 1.0, 0.9, 1.1),
        ("hfta", "fp32", 4, 3.0, 2.9, 3.1),
        ("hfta", "fp32", 1, 1.2, NAN, NAN),
        ("hfta", "fp32", 8, NAN, NAN, NAN),
        ("concurrent", "fp32", 2, 1.3, 1.2, 1.4),
    ]
    plots.throughput(summary(*rows), axes)
    lines = {str(line.get_label()): line for line in axes.get_lines() if not str(line.get_label()).startswith("_")}
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


def test_nothing_to_draw(axes: Axes) -> None:
    with pytest.raises(InvalidArgument, match="no serial fp32 run"):
        plots.throughput(summary(("hfta", "fp32", 1, NAN, NAN, NAN)), axes)


def test_what_is_not_known_within_a_factor_of_two_is_not_drawn_and_the_title_says_so(axes: Axes) -> None:
    rows = summary(
        ("serial", "fp32", 1, 1.0, 0.9, 1.1), ("hfta", "fp32", 1, 1.5, 1.2, 1.9), ("hfta", "fp32", 2, 45.0, 17.0, 118.0)
    )
    rows["state"] = "on 1 of 2 cores, others used 1.0"
    rows.attrs["titles"] = {"bert": "bert, batch 8, 2 × a processor, 1 repeat"}
    plots.throughput(rows, axes)
    (line,) = (line for line in axes.get_lines() if line.get_label() == "hfta fp32")
    assert list(line.get_xdata()) == [1]
    assert axes.get_ylim()[1] < 3
    assert axes.get_title().splitlines() == [
        "bert, batch 8, 2 × a processor, 1 repeat, 95 % intervals",
        "1 point not drawn: inconclusive",
        "on 1 of 2 cores, others used 1.0",
    ]
    with pytest.raises(InvalidArgument, match="the machine was busy"):
        plots.throughput(rows[2:], axes)


def test_an_inconclusive_run_is_no_point_in_the_figure(axes: Axes) -> None:
    """It has no interval that could be too wide; several runs of a point have one."""
    busy = "on 1 of 2 cores, others used 2.0; inconclusive: the machine was busy: 3 undisturbed blocks: 8 are needed"
    rows = summary(
        ("serial", "fp32", 1, 1.0, NAN, NAN), ("hfta", "fp32", 1, 1.9, NAN, NAN), ("hfta", "fp32", 2, 1.5, 1.4, 1.6),
        ("hfta", "fp32", 4, 2.0, NAN, NAN),
    )  # fmt: skip
    rows["state"], rows["runs"] = ["on 1 of 2 cores, others used 2.0", busy, busy, ""], [1, 1, 2, 1]
    plots.throughput(rows, axes)
    (line,) = (line for line in axes.get_lines() if line.get_label() == "hfta fp32")
    assert list(line.get_xdata()) == [2, 4]
    assert axes.get_title().splitlines()[0] == "1 point not drawn: inconclusive"


def test_a_figure_without_any_speedup_says_so(axes: Axes) -> None:
    rows = summary(("serial", "fp32", 1, 1.0, NAN, NAN), ("hfta", "fp32", 2, 1.9, NAN, NAN))
    rows["state"], rows["runs"] = ["", "inconclusive: the machine was busy: others"], 1
    plots.throughput(rows, axes)
    assert [text.get_text() for text in axes.texts] == ["no speedup is known well enough to be drawn"]
    rows["state"] = ""
    axes.clear()
    plots.throughput(rows, axes)
    assert not axes.texts


def test_modes_differ_in_colour_and_marker(axes: Axes) -> None:
    rows = [(mode, "fp32", 2, 1.0, 0.9, 1.1) for mode in ("concurrent", "mps", "mig", "hfta")]
    plots.throughput(summary(*rows), axes)
    lines = [line for line in axes.get_lines() if not str(line.get_label()).startswith("_")]
    assert len({line.get_marker() for line in lines}) == len({line.get_color() for line in lines}) == 4
