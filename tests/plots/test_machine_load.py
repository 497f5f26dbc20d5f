# SPDX-License-Identifier: MIT
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dnnsuite import plots
from dnnsuite.errors import InvalidArgument


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
