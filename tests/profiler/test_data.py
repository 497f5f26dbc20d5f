# SPDX-License-Identifier: MIT
"""Summary, record and files need a profile's data alone: no loop, no instruments."""

import json

import pandas as pd

from dnnsuite.profiler._save import save
from dnnsuite.profiler._windows import STEP_COLUMNS, LoopStep
from dnnsuite.profiler.data import ProfileData
from dnnsuite.profiler.instrument import define
from dnnsuite.profiler.summary import rate, record, summary

MS = 1_000_000


def data(count):
    steps = [LoopStep(i, "active", 0, i * 10 * MS, (i + 1) * 10 * MS, 9 * MS, 18 * MS, MS) for i in range(count)]
    table = pd.DataFrame(steps, columns=list(LoopStep._fields)).assign(wall_ns=10 * MS)
    return ProfileData(
        metrics="timeline", schedule=None, about={"job": "toy"}, ran=count, active=steps, quiet=[],
        tables={"steps": define(table, STEP_COLUMNS)}, instruments=pd.DataFrame(columns=["instrument"]),
        absent=[], overhead=None, loader_workers=None, optimizer=None, notes=["a note"],
    )  # fmt: skip


def test_everything_is_made_of_the_data(tmp_path):
    observed = data(4)
    assert observed.wall_ns == 40 * MS
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
