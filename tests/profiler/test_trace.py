# SPDX-License-Identifier: MIT
"""The trace is JSON of the right events, with exact times, whole or absent."""

import gzip
import json
import math
from decimal import Decimal

import pandas as pd
import pytest

from dnnsuite._files import OutputError
from dnnsuite.errors import InvalidArgument
from dnnsuite.profiler.trace import export_trace, trace_events
from profiler.activity.tables import api, intervals, kernels

BASE = 4_000_000 * 10**9 + 123  # after 46 days a float of µs has lost the ns


def shifted(table):
    return table.assign(t0_ns=table["t0_ns"] + BASE, t1_ns=table["t1_ns"] + BASE)


def gpu_tables():
    return {
        "kernels": shifted(kernels((50, 101, 'say "hi"<int>\n', "gemm", 1), (200, 300, "b", "norm", 2))),
        "memops": shifted(intervals((10, 20), operation="HtoD", device=0, stream=9, correlation=5, bytes=4096)),
        "api": shifted(api((0, 9, "cudaLaunchKernel", 1, 71), (30, 33, "cudaLaunchKernel", 2, 72))),
        "spans": shifted(intervals((0, 400), (0, 100), name=["step", "forward"], step=[3, 3], thread=71)),
        "idle_gaps": shifted(intervals((20, 50), device=0, gap_ns=30)),
        "empty": pd.DataFrame({"t0_ns": [], "t1_ns": []}),
        "other": pd.DataFrame({"x": [1]}),
    }


def read(path):
    return json.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)


def test_every_row_is_a_slice_at_its_exact_time(tmp_path):
    tables = gpu_tables()
    path = export_trace(tables, tmp_path / "trace.json")
    document = read(path)
    assert int(document["otherData"]["base_ns"]) == BASE
    slices = [event for event in document["traceEvents"] if event["ph"] == "X"]
    for name in ("kernels", "memops", "api", "spans"):
        found = [event for event in slices if event["cat"] == name]
        assert [int(event["ts"] * 1000) + BASE for event in found] == tables[name]["t0_ns"].tolist()
        lengths = tables[name]["t1_ns"] - tables[name]["t0_ns"]
        assert [int(event["dur"] * 1000) for event in found] == lengths.tolist()
    assert [event["name"] for event in slices][:3] == ['say "hi"<int>\n', "b", "HtoD"]
    assert slices[2]["args"] == {"correlation": 5, "bytes": 4096}
    assert [e["args"]["step"] for e in slices if e["cat"] == "spans"] == [3, 3]


def test_tracks_have_names_and_slices_of_one_nest(tmp_path):
    events = read(export_trace(gpu_tables(), tmp_path / "t.json"))["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert {*names.values()} == {
        "stream 7",
        "stream 9",
        "idle_gaps",
        "api of thread 71",
        "api of thread 72",
        "spans of thread 71",
    }
    idle = next(e for e in events if e.get("cat") == "idle_gaps")
    assert names[idle["pid"], idle["tid"]] == "idle_gaps"
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert {*processes.values()} == {"GPU 0", "host"}
    assert processes[idle["pid"]] == "GPU 0"
    for event in events:
        if event["ph"] in "Xsf":
            assert (event["pid"], event["tid"]) in names


def test_arrows_lead_from_a_call_to_its_kernel(tmp_path):
    events = read(export_trace(gpu_tables(), tmp_path / "t.json"))["traceEvents"]
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert starts.keys() == ends.keys() == {1, 2}
    slices = {(e["pid"], e["tid"], e["ts"]) for e in events if e["ph"] == "X"}
    for arrow in (*starts.values(), *ends.values()):
        assert (arrow["pid"], arrow["tid"], arrow["ts"]) in slices


def test_samples_are_counters_and_what_is_no_number_is_left_out(tmp_path):
    samples = pd.DataFrame(
        {
            "t_ns": [5, 6, 7, 8],
            "source": "nvml",
            "device": [0, 0, 0, 1],
            "name": ["power", "power", "power", "clock"],
            "value": [100.5, math.nan, 102.0, 1980],
            "unit": ["W", "W", "W", "MHz"],
        }
    )
    events = read(export_trace({"samples": samples}, tmp_path / "t.json"))["traceEvents"]
    counters = [e for e in events if e["ph"] == "C"]
    assert [(e["name"], float(e["args"]["value"])) for e in counters] == [
        ("power (W)", 100.5),
        ("power (W)", 102.0),
        ("clock (MHz)", 1980.0),
    ]
    assert {e["args"]["name"] for e in events if e["ph"] == "M"} == {"nvml 0 samples", "nvml 1 samples"}


def test_a_cpu_alone_has_a_trace(tmp_path):
    tables = {
        "phases": intervals((0, 5), (5, 9), phase=["data", "forward"], thread=[1, 1]),
        "ops": intervals((6, 7), name=["aten::mm"], thread=[1], flops=[1e9]),
        "samples": pd.DataFrame({"t_ns": [1], "name": ["cpu"], "value": [0.5]}),
    }
    events = read(export_trace(tables, tmp_path / "t.json"))["traceEvents"]
    assert [e["name"] for e in events if e["ph"] == "X"] == ["data", "forward", "aten::mm"]
    assert not [e for e in events if e["ph"] in "sf"]


def test_missing_values_are_left_out_of_arguments():
    table = intervals(
        (0, 1),
        (1, 2),
        name=["a", "b"],
        share=[math.nan, math.inf],
        ok=[True, False],
        step=pd.array([3, None], dtype="Int64"),
        note=[None, "x"],
    )
    first, second = (json.loads(event)["args"] for event in list(trace_events({"spans": table}))[:2])
    assert first == {"ok": True, "step": 3}
    assert second == {"ok": False, "note": "x"}


def test_compressed(tmp_path):
    path = export_trace(gpu_tables(), tmp_path / "t.json.gz")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        assert json.load(file)["displayTimeUnit"] == "ns"


def test_nothing_to_show_leaves_nothing(tmp_path):
    target = tmp_path / "t.json"
    target.write_text("old")
    with pytest.raises(InvalidArgument, match="other"):
        export_trace({"other": pd.DataFrame({"x": [1]})}, target)
    assert target.read_text() == "old"
    with pytest.raises(OutputError, match="nowhere"):
        export_trace(gpu_tables(), tmp_path / "nowhere" / "t.json")
    assert [path.name for path in tmp_path.iterdir()] == ["t.json"]
