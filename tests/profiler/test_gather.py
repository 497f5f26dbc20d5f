# SPDX-License-Identifier: MIT
"""What of the instruments' tables is kept, and self times of nested operators."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnnsuite.profiler import define, definitions
from dnnsuite.profiler._gather import derived, read, self_times, within
from dnnsuite.profiler._windows import Step
from profiler_loops import Operators


def test_rows_outside_of_the_observed_steps_are_dropped():
    table = pd.DataFrame({"t0_ns": [0, 10, 19, 20, 35, 99], "name": list("abcdef")})
    assert list(within(table, [(10, 20), (30, 40)])["name"]) == ["b", "c", "e"]
    assert list(within(table.rename(columns={"t0_ns": "t_ns"}), [(10, 20)])["name"]) == ["b", "c"]
    assert within(table, []).empty
    timeless = pd.DataFrame({"metric": ["a"]})
    assert within(timeless, [(0, 1)]) is timeless


def test_tables_of_one_name_are_joined_with_their_definitions():
    class Samples(Operators):
        def __init__(self, value):
            super().__init__()
            self.value = value

        def tables(self):
            return {"samples": define(pd.DataFrame({"value": [self.value]}), {"value": "what was read"})}

    tables, notes = read([Samples(1.0), Samples(2.0)])
    assert list(tables["samples"]["value"]) == [1.0, 2.0]
    assert definitions(tables["samples"]) == {"value": "what was read"}
    assert len(notes) == 2


def test_self_times_by_hand():
    table = pd.DataFrame(
        {"thread": [1, 1, 1, 2, 1], "t0_ns": [0, 10, 20, 5, 60], "t1_ns": [50, 40, 30, 45, 70]}
    )
    assert list(self_times(table)) == [20, 20, 10, 40, 10]


@given(cuts=st.lists(st.integers(1, 999), min_size=2, max_size=20, unique=True), threads=st.integers(1, 3))
def test_self_times_sum_to_the_outermost(cuts, threads):
    ordered = sorted(cuts)
    rows = [(0, 1000)]
    for begin, end in zip(ordered[::2], ordered[1::2], strict=False):
        rows += [(begin, end), (begin, (begin + end + 1) // 2)]
    table = pd.concat(
        [pd.DataFrame(rows, columns=["t0_ns", "t1_ns"]).assign(thread=t) for t in range(threads)],
        ignore_index=True,
    ).sample(frac=1, random_state=1)
    own = self_times(table)
    assert own.sum() == 1000 * threads
    assert (own >= 0).all()


def test_kernels_are_the_work_where_there_are_any():
    steps = [Step(0, "active", 0, 0, 1000, 1000, 0, 0)]
    kernels = pd.DataFrame({"t0_ns": [0, 300], "t1_ns": [200, 500], "class": ["gemm", "comm"], "stream": 7})
    copies = pd.DataFrame({"t0_ns": [600], "t1_ns": [700]})
    ops = pd.DataFrame({"name": ["aten::mm"], "thread": [1], "t0_ns": [0], "t1_ns": [900]})
    table = derived(steps, {"kernels": kernels, "memops": copies, "ops": ops}, 1)["breakdown"]
    assert dict(zip(table["class"], np.round(table["share_pct"]), strict=True)) == pytest.approx(
        {"host": 50, "gemm": 20, "communication": 20, "copy": 10}
    )
