# SPDX-License-Identifier: MIT
"""Operators of a trace: nested by their times, summed by class and name."""

import numpy as np
import pandas as pd
import pytest

from dnnsuite.profiler.data import BETWEEN, analyse_operators, operator_table


def table():
    names = pd.Series(["aten::mm", "aten::linear", "aten::relu"], dtype="category")
    times = np.array([[20, 60], [10, 80], [85, 95]], np.int64)
    return operator_table(times[:, 0], times[:, 1], names, np.zeros(3, np.int64))


def test_operators_are_nested_by_their_times():
    assert table()[["name", "class", "depth", "self_ns"]].values.tolist() == [
        ["aten::linear", "gemm", 0, 30],
        ["aten::mm", "gemm", 1, 40],
        ["aten::relu", "elementwise", 0, 10],
    ]


def test_shares_of_the_windows_sum_to_100():
    found = analyse_operators(table(), [(0, 100)], data=[(0, 5)])["breakdown"]
    shares = found.set_index("class")["share_pct"].to_dict()
    assert shares == pytest.approx({"gemm": 70, "elementwise": 10, "data wait": 5, BETWEEN: 15})
    assert analyse_operators(table(), [(200, 300)]) == {}
    updated = analyse_operators(table(), [(0, 100)], optimizer=[(0, 100)])["breakdown"]
    assert {*updated["class"]} <= {"optimizer", BETWEEN, "views"}
