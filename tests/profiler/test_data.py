# SPDX-License-Identifier: MIT
"""Summary, record and files need a profile's data alone: no loop, no instruments."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from dnnsuite.profiler import define, definitions
from dnnsuite.profiler._windows import STEP_COLUMNS, LoopStep
from dnnsuite.profiler.data import derived, read, within
from dnnsuite.profiler.summary import rate, record, summary
from dnnsuite.profiler.trace import save
from profiler_loops import Operators

MS = 1_000_000


def data(count):
    steps = [LoopStep(i, "active", 0, i * 10 * MS, (i + 1) * 10 * MS, 9 * MS, 18 * MS, MS) for i in range(count)]
    table = pd.DataFrame(steps, columns=list(LoopStep._fields)).assign(wall_ns=10 * MS)
    return SimpleNamespace(
        metrics="timeline", schedule=None, about={"job": "toy"}, ran=count, active=steps, quiet=[],
        tables={"steps": define(table, STEP_COLUMNS)}, instruments=pd.DataFrame(columns=["instrument"]),
        absent=[], overhead=None, loader_workers=None, optimizer=None, notes=["a note"],
        wall_ns=count * 10 * MS,
    )  # fmt: skip


def test_everything_is_made_of_the_data(tmp_path):
    observed = data(4)
    assert rate(observed).steps_per_s == 100
    assert "displaced_pct" in record(observed)
    assert record(observed)["displaced_pct"] == 10
    page = summary(observed)
    assert page.startswith("profile of toy\n")
    assert "a note" in page
    files = {path.name for path in save(observed, tmp_path)}
    assert {"steps.csv", "profile.json", "summary.txt", "trace.json.gz"} <= files
    assert json.loads((tmp_path / "profile.json").read_text())["steps"] == 4


def test_data_without_an_observed_step_says_so(tmp_path):
    assert "no step was observed" in summary(data(0))


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


def test_kernels_are_the_work_where_there_are_any():
    steps = [LoopStep(0, "active", 0, 0, 1000, 1000, 0, 0)]
    kernels = pd.DataFrame({"t0_ns": [0, 300], "t1_ns": [200, 500], "class": ["gemm", "comm"], "stream": 7})
    copies = pd.DataFrame({"t0_ns": [600], "t1_ns": [700]})
    ops = pd.DataFrame({"class": ["gemm"], "thread": [1], "t0_ns": [0], "t1_ns": [900]})
    table = derived(steps, {"kernels": kernels, "memops": copies, "ops": ops}, 1)["breakdown"]
    assert dict(zip(table["class"], np.round(table["share_pct"]), strict=True)) == pytest.approx(
        {"host": 50, "gemm": 20, "communication": 20, "copy": 10}
    )


def test_kernels_with_their_launches_are_analysed():
    steps = [LoopStep(0, "active", 0, 0, 1000, 1000, 0, 0)]
    kernels = pd.DataFrame({"t0_ns": [100], "t1_ns": [300], "name": ["sgemm"], "class": ["gemm"]})
    kernels = kernels.assign(device=0, stream=7, correlation=5)
    api = pd.DataFrame({"t0_ns": [20], "t1_ns": [30], "function": ["launch"], "correlation": [5], "thread": [1]})
    phases = pd.DataFrame({"phase": ["forward"], "thread": [1], "t0_ns": [10], "t1_ns": [50], "cpu_ns": [40]})
    found = derived(steps, {"kernels": kernels, "api": api, "phases": phases}, 1)
    assert found["gpu"]["compute_pct"].tolist() == [20.0]
    assert found["kernels_by_span"][["span", "class"]].to_numpy().tolist() == [["forward", "gemm"]]


def test_operators_by_name_and_the_loops_own_thread():
    steps = [LoopStep(i, "active", 0, 1000 * i, 1000 * (i + 1), 1000, 0, 0) for i in range(2)]
    phases = pd.DataFrame(
        {"phase": ["data", "forward"], "thread": 77, "t0_ns": [0, 500], "t1_ns": [400, 900], "cpu_ns": [400, 400]}
    )
    rows = [
        ("aten::stack", "copy", 3, 0, 400, 400),
        ("aten::mm", "gemm", 3, 500, 800, 300),
        ("aten::mm", "gemm", 4, 0, 100, 100),
    ]
    ops = pd.DataFrame(rows, columns=["name", "class", "thread", "t0_ns", "t1_ns", "self_ns"])
    found = derived(steps, {"phases": phases, "ops": ops}, 77)
    table = found["breakdown"]
    assert dict(zip(table["class"], table["share_pct"], strict=True)) == pytest.approx(
        {"host": 65, "gemm": 15 + 2.5, "data wait": 15, "copy": 2.5}
    )
    by_name = found["ops_by_name"].set_index("name")
    assert by_name.loc["aten::mm", ["calls_per_step", "self_pct"]].tolist() == pytest.approx([1, 50])


def test_where_nobody_saw_what_ran_no_time_is_given_away():
    steps = [LoopStep(0, "active", 0, 0, 1000, 1000, 0, 0)]
    phases = pd.DataFrame({"phase": ["forward"], "thread": [1], "t0_ns": [0], "t1_ns": [9], "cpu_ns": [9]})
    assert derived(steps, {"phases": phases}, 1) == {}
