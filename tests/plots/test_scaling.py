# SPDX-License-Identifier: MIT
import math

import pandas as pd
from matplotlib.axes import Axes

from dnnsuite import plots


def scaling(*points: tuple[int, float, float], device: str = "cuda") -> pd.DataFrame:
    made = pd.DataFrame(points, columns=["processes", "rate", "efficiency"])
    made = made.assign(rate_low=made["rate"] - 1, rate_high=made["rate"] + 1, ideal=10.0 * made["processes"])
    made = made.assign(efficiency_low=math.nan, efficiency_high=math.nan, unit="images/s", job="toy")
    return made.assign(device=device, precision="fp32", B=1, batch_per_process=128)


def test_points_and_the_ideal_line(axes: Axes) -> None:
    beside = axes.figure.add_subplot()
    plots.weak_scaling(scaling((1, 10.0, 1.0), (4, 32.0, 0.8), (4, 34.0, 0.85)), axes, beside)
    assert axes.get_title() == "Weak scaling training throughput"
    assert axes.get_xlabel() == "Number of GPUs"
    (ideal,) = [line for line in axes.get_lines() if line.get_label() == "ideal"]
    assert list(ideal.get_ydata()) == [0, 40]
    assert [line for line in beside.get_lines() if list(line.get_ydata())[:1] == [100]]
    assert beside.get_ylim() == (0, 110)


def test_on_a_cpu_they_are_processes(axes: Axes) -> None:
    plots.weak_scaling(scaling((1, 10.0, 1.0), (2, 18.0, 0.9), device="cpu"), axes)
    assert axes.get_xlabel() == "Number of processes"
