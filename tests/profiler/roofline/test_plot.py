# SPDX-License-Identifier: MIT
"""The figure of a roofline."""

import pytest
from matplotlib.figure import Figure

from dnnsuite.profiler.roofline import Roofline, draw


def test_roofs_alone(peaks):
    axes = draw(peaks, ax=Figure().subplots())
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["fp32 100 GFLOP/s", "bf16 200 GFLOP/s", "L2 100 GB/s", "memory 10 GB/s"]
    for line in axes.get_lines()[2:]:  # a slope ends where it meets the highest roof
        assert line.get_ydata()[-1] == pytest.approx(200e9)
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")


def test_points_are_of_all_lanes_and_have_names(peaks, ops, steps):
    calls = [
        (name, thread, 20, 10**9, size)
        for name, size in (("aten::mm", 10**7), ("aten::bmm", 10**9))
        for thread in (1, 2)
    ]
    calls.append(("aten::add", 1, 5, 0, 10**6))
    found = Roofline(peaks, ops(*calls), steps((40, 80)))
    axes = draw(peaks, found.table, Figure().subplots(), found.lanes)
    (points,) = axes.collections
    assert sorted(x for x, _ in points.get_offsets()) == pytest.approx([1.0, 100.0])  # one without FLOPs has no place
    assert all(y == pytest.approx(100e9) for _, y in points.get_offsets())
    assert sorted(text.get_text() for text in axes.texts) == ["bmm (forward)", "mm (forward)"]
    low, high = axes.get_xlim()
    assert low < 1.0
    assert high > 100.0


def test_a_figure_of_its_own(peaks, monkeypatch):
    import matplotlib.pyplot as plt

    axes = draw(peaks)
    plt.close(axes.figure)
    assert axes.get_ylabel() == "FLOP/s"
