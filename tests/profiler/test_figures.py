# SPDX-License-Identifier: MIT
"""Figures show what the tables say."""

import pandas as pd
import pytest
from matplotlib.figure import Figure

from dnnsuite.profiler._op_classes import CLASSES
from dnnsuite.profiler.figures import bars, colour, timeline


@pytest.fixture
def ax():
    return Figure().subplots()


def test_bars_have_the_length_of_the_shares(ax):
    table = pd.DataFrame(
        {"class": ["gemm", "host"], "ms_per_step": [3.0, 1.0], "share_pct": [75.0, 25.0], "definition": ""}
    )
    bars(table, ax)
    assert [bar.get_width() for bar in ax.patches] == [25, 75]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["host", "gemm"]


def test_a_timeline_has_a_row_per_thread_and_stream(ax):
    ms = 1_000_000
    steps = pd.DataFrame({"phase": "active", "window": 0, "t0_ns": [0, 10 * ms], "t1_ns": [10 * ms, 20 * ms]})
    phases = pd.DataFrame({"phase": ["forward"], "thread": [1], "t0_ns": [ms], "t1_ns": [3 * ms]})
    ops = pd.DataFrame(
        {
            "name": ["aten::mm", "aten::view"],
            "class": ["gemm", "view"],
            "thread": [5, 6],
            "t0_ns": [ms, 99 * ms],
            "t1_ns": [2 * ms, 99 * ms],
        }
    )
    kernels = pd.DataFrame({"class": ["conv"], "stream": [7], "t0_ns": [4 * ms], "t1_ns": [8 * ms]})
    timeline({"steps": steps, "phases": phases, "ops": ops, "kernels": kernels}, ax)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["phases", "operators", "stream 7"]
    assert ax.get_xlim() == (0, 20)
    drawn = [path.get_extents().intervalx.tolist() for each in ax.collections for path in each.get_paths()]
    assert drawn == [[1, 3], [1, 2], [4, 8]]


def test_every_class_has_a_colour_of_its_own():
    colours = [colour(name) for name in (*CLASSES, "data wait", "host", "idle")]
    assert len(set(colours)) == len(colours)
