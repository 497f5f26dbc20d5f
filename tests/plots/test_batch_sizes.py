# SPDX-License-Identifier: MIT
import math

import pandas as pd
import pytest
from matplotlib.axes import Axes

from dnnsuite import plots
from dnnsuite.errors import InvalidArgument

NAN = math.nan


def summary(*rows: tuple[int, float, bool]) -> pd.DataFrame:
    made = pd.DataFrame(rows, columns=["batch_size", "rate", "knee"])
    made = made.assign(rate_low=made["rate"] * 0.9, rate_high=made["rate"] * 1.1, peak_memory_bytes=2.0**20)
    made["status"] = ["ok" if rate > 0 else "oom" for rate in made["rate"]]
    return made.assign(job="toy", device="cpu", mode="serial", precision="fp32", B=1, unit="naps/s")


def labels(axes: Axes) -> list[str]:
    legend = axes.get_legend()
    assert legend is not None
    return sorted(text.get_text() for text in legend.get_texts())


def test_the_curve_the_knee_and_what_failed(axes: Axes) -> None:
    plots.batch_sizes(summary((1, 10.0, False), (2, 19.0, True), (4, 19.5, False), (8, NAN, False)), axes)
    assert labels(axes) == ["knee at 2", "oom", "toy fp32 on cpu"]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "2", "4", "8"]
    assert axes.get_ylabel() == "naps/s"
    assert axes.get_ylim()[0] == 0


def test_an_array_says_how_many_models_it_has(axes: Axes) -> None:
    plots.batch_sizes(summary((1, 10.0, False)).assign(mode="hfta", B=8), axes)
    assert labels(axes) == ["toy fp32 on cpu, B=8"]


def test_memory_is_drawn_beside(axes: Axes) -> None:
    beside = axes.figure.add_subplot()
    plots.batch_sizes(summary((1, 10.0, False), (2, 19.0, False)), axes, beside)
    assert list(beside.get_lines()[0].get_ydata()) == [1.0, 1.0]


def test_nothing_measured_is_nothing_to_draw(axes: Axes) -> None:
    with pytest.raises(InvalidArgument, match="no batch size was measured"):
        plots.batch_sizes(summary((1, NAN, False)), axes)
