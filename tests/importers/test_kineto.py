# SPDX-License-Identifier: MIT
"""Events of a trace one at a time, whatever its size."""

import gzip
import json
import re
import tracemalloc

import pytest

from dnnsuite import importers
from dnnsuite.importers import BadFile, kineto, nsys
from dnnsuite.importers.kineto import TraceFile
from dnnsuite.profiler.activity import analyse, attribute
from importer_samples import kineto as trace
from importer_samples import new_schema, sqlite


def test_a_trace_of_torch(tmp_path):
    tables = kineto.read(trace(tmp_path / "trace.json"))
    kernel = tables["kernels"].iloc[0]
    assert kernel[["t0_ns", "t1_ns", "grid_x", "block_x", "registers_per_thread"]].tolist() == [
        20500,
        24750,
        4,
        32,
        128,
    ]
    assert kernel["class"] == "gemm"
    assert tables["memops"][["operation", "source_memory", "target_memory", "bytes"]].values.tolist() == [
        ["HtoD", "pinned", "device", 4096],
        ["memset", "unknown", "device", 64],
    ]
    assert tables["api"]["function"].tolist() == ["cudaLaunchKernel"]
    assert tables["api"]["t0_ns"].tolist() == [15001]
    spans = tables["markers"].assign(step=0)
    assert attribute(tables["kernels"], tables["api"], spans)["span"].tolist() == ["forward"]
    windows = [tuple(window) for window in tables["kernels"].attrs["windows"]]
    assert analyse(tables, windows)["gpu"]["kernel_ns"].tolist() == [4250]


def test_columns_are_those_of_nsys(tmp_path):
    mine = kineto.read(trace(tmp_path / "trace.json"))
    other = nsys.read(sqlite(tmp_path / "x.sqlite", new_schema()))
    assert {n: list(mine[n].columns) for n in other} == {n: list(t.columns) for n, t in other.items()}
    assert {*mine} - {*other} == {"ops"}


def test_a_packed_trace(tmp_path):
    plain = trace(tmp_path / "trace.json")
    packed = tmp_path / "trace.json.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert kineto.read(packed)["kernels"].equals(kineto.read(plain)["kernels"])


def test_what_torch_itself_writes(tmp_path):
    torch = pytest.importorskip("torch")
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=cpu) as profile, torch.profiler.record_function("outer"):
        torch.ones(8).add(1)
    path = tmp_path / "cpu.json"
    profile.export_chrome_trace(str(path))
    tables = kineto.read(path)
    assert tables["markers"]["name"].tolist() == ["outer"]
    assert {"aten::ones", "aten::add"} <= {*tables["ops"]["name"]}
    assert not len(tables["kernels"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"traceEvents": [\n{"ph": "X", ', r"x.json:2: .*the file is cut"),
        ('{"other": 1}', "no list traceEvents"),
        ('{"traceEvents": []}', "nothing was recorded"),
        (json.dumps({"traceEvents": [{"ph": "X", "cat": "kernel", "ts": "soon"}]}), "damaged"),
        (json.dumps({"traceEvents": [{"ph": "X", "cat": "kernel", "ts": 1e300}]}), "damaged"),
        (json.dumps({"traceEvents": [{"ph": "X", "cat": "kernel", "ts": 1, "args": 3}]}), "damaged"),
    ],
)
def test_damage_is_named(tmp_path, content, message):
    path = tmp_path / "x.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(BadFile, match=message):
        kineto.read(path)


def cpu_trace(path, steps=2, base=0.0):
    """A trace of the CPU: per step of 1 ms a wait for data of 200 us, a linear layer of 500 with its product of 400."""
    events = []
    for step in range(steps):
        at = base + 1000.0 * step
        events += [
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step + 3}", "ts": at, "dur": 1000, "tid": 9},
            {
                "ph": "X",
                "cat": "user_annotation",
                "name": "enumerate(DataLoader)#x.__next__",
                "ts": at,
                "dur": 200,
                "tid": 9,
            },
            {"ph": "X", "cat": "cpu_op", "name": "aten::linear", "ts": at + 300, "dur": 500, "tid": 9},
            {"ph": "X", "cat": "cpu_op", "name": "aten::addmm", "ts": at + 350, "dur": 400, "tid": 9},
        ]
    path.write_text(json.dumps({"baseTimeNanoseconds": 5, "traceEvents": events, "distributedInfo": {"rank": 1}}))
    return path


def test_operators_and_steps_of_a_cpu(tmp_path):
    found = importers.load(cpu_trace(tmp_path / "cpu.json"))
    assert found.tables["ops"][["name", "depth", "self_ns"]].values.tolist()[:2] == [
        ["aten::linear", 0, 100_000],
        ["aten::addmm", 1, 400_000],
    ]
    assert found.tables["steps"]["step"].tolist() == [3, 4]
    assert found.windows == [(0, 10**6), (10**6, 2 * 10**6)]
    assert found.tables["ops"].attrs["about"] == {"rank": 1, "base_ns": 5}
    results = importers.analyse_trace(found)
    shares = results["breakdown"].set_index("class")["share_pct"]
    assert shares.to_dict() == pytest.approx({"gemm": 50, "between operators": 30, "data wait": 20})
    assert results["ops_by_name"]["calls_per_step"].tolist() == [1, 1]


def test_the_words_of_old_versions(tmp_path):
    events = [
        {"ph": "X", "cat": "Operator", "name": "ProfilerStep#7", "ts": 0, "dur": 90, "tid": "4"},
        {"ph": "X", "cat": "Operator", "name": "aten::mm", "ts": 10, "dur": 20, "tid": "4"},
        {
            "ph": "X",
            "cat": "Runtime",
            "name": "cudaLaunchKernel",
            "ts": 12,
            "dur": 3,
            "tid": "4",
            "args": {"correlation": 3},
        },
        {"ph": "X", "cat": "Kernel", "name": "gemm", "ts": 40, "dur": 30, "args": {"device": 0, "correlation": 3}},
        {"ph": "X", "cat": "Memset", "name": "Memset (Device)", "ts": 80, "dur": 1, "args": {"bytes": 8}},
    ]
    path = tmp_path / "old.json"
    path.write_text(json.dumps(events), encoding="utf-16")  # a bare list, as PowerShell writes it
    tables = kineto.read(path)
    assert {name: len(table) for name, table in tables.items() if len(table)} == {
        "kernels": 1, "memops": 1, "api": 1, "ops": 1, "steps": 1,
    }  # fmt: skip
    assert tables["memops"]["operation"].tolist() == ["memset"]


def test_our_own_trace_is_read(tmp_path):
    at = {"ph": "X", "pid": 1, "tid": 1}
    events = [
        {**at, "cat": "steps", "name": "step 9", "ts": 0.0, "dur": 9.0},
        {**at, "cat": "steps", "name": "a step without a number", "ts": 0.0, "dur": 9.0},
        {**at, "cat": "phases", "name": "forward", "ts": 1.0, "dur": 5.0},
        {**at, "cat": "ops", "name": "aten::mm", "ts": 2.0, "dur": 3.0},
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    tables = kineto.read(path)
    assert tables["steps"]["step"].tolist() == [9]
    assert tables["ops"]["name"].tolist() == ["aten::mm"]
    assert len(tables["markers"]) == 1


def test_a_trace_of_another_program_is_refused(tmp_path):
    path = tmp_path / "trace.json"
    events = [{"ph": "X", "name": "cuMemAlloc_v2", "ts": 1.5, "dur": 2.0, "pid": 1, "tid": 1}]
    path.write_text(json.dumps({"traceEvents": events}))
    with pytest.raises(BadFile, match=r"trace of another program.*\(none\)"):
        kineto.read(path)
    path.write_text(json.dumps({"traceEvents": [{**events[0], "cat": "v8"}, {**events[0], "cat": "gc"}]}))
    with pytest.raises(BadFile, match=r"\(gc, v8\)"):
        kineto.read(path)


def events_file(path, events):
    path.write_text(json.dumps({"traceEvents": [{"ph": "X", "pid": 1, "tid": 1, **each} for each in events]}))
    return path


@pytest.mark.parametrize("base", [0, 1_695_835_535_000_000])
@pytest.mark.parametrize("fraction", [0, 0.001])
def test_operators_that_touch_are_not_inside_of_each_other(tmp_path, base, fraction):
    """Whole microseconds since 1970, and decimals, are more digits than a double has."""
    events = []
    for number in range(100):
        for name, at, duration in (("aten::linear", 0, 20), ("aten::t", 0, 10), ("aten::addmm", 10, 10)):
            begin = base + 37 * number + at
            events.append({"cat": "cpu_op", "name": name, "ts": begin + fraction, "dur": duration})
    text = json.dumps({"traceEvents": [{"ph": "X", "pid": 1, "tid": 1, **each} for each in events]})
    if fraction:  # as text, because Python's own numbers lose the fraction, too
        text = re.sub(r'"ts": (\d+)\.?\d*', r'"ts": \g<1>.001', text)
    (tmp_path / "trace.json").write_text(text)
    ops = kineto.read(tmp_path / "trace.json")["ops"]
    own = ops.groupby(ops["name"].astype(str))["self_ns"].sum()
    assert own.to_dict() == {"aten::linear": 0, "aten::t": 1_000_000, "aten::addmm": 1_000_000}
    assert ops["t0_ns"].iloc[0] == base * 1000 + (1 if fraction else 0)


@pytest.mark.parametrize("time", ['"soon"', "NaN", "1e999999999", "Infinity", "1e400", "null", "-1e18"])
def test_a_time_that_is_none_is_refused(tmp_path, time):
    event = '{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "dur": 1, "ts": %s}'
    (tmp_path / "trace.json").write_text('{"traceEvents": [%s]}' % (event % time))
    with pytest.raises(BadFile):
        kineto.read(tmp_path / "trace.json")


def test_kernels_without_times_are_left_out(tmp_path):
    work = {"cat": "kernel", "name": "sgemm", "args": {"device": 0, "stream": 7}}
    path = events_file(tmp_path / "trace.json", [
        {**work, "ts": 5, "dur": 10}, {**work, "ts": 0, "dur": 0}, {**work, "ts": -1.7e15, "dur": 0},
    ])  # fmt: skip
    found = importers.load(path)
    assert found.windows == [(5000, 15000)]
    assert any(note.startswith("2 kernels have no times") for note in found.notes)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("step a\ttab", "step a\ttab"), (r"C:\users\me\d.py", r"C:\users\me\d.py"), (r"a\\b", r"a\b"),
        (r"\u0041\x", r"A\x"),
    ],
)  # fmt: skip
def test_names_that_are_not_quite_json(tmp_path, written, name):
    text = '{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "%s", "pid": 1, "tid": 1, "ts": 1, "dur": 5}]}'
    (tmp_path / "trace.json").write_text(text % written)
    assert kineto.read(tmp_path / "trace.json")["ops"]["name"].tolist() == [name]


def test_a_large_trace_is_read_in_pieces(tmp_path):
    """Three chunks of the file, values over their edges, the memory that of the columns."""
    path, name = tmp_path / "large.json", "aten::" + "x" * 500
    with open(path, "w", encoding="utf-8") as file:
        file.write('{"schemaVersion": 1, "traceEvents": [\n')
        for number in range(16_000):
            event = {"ph": "X", "cat": "cpu_op", "name": name, "ts": number * 10, "dur": 5, "args": {"é": "y" * 100}}
            file.write((",\n" if number else "") + json.dumps(event, ensure_ascii=False))
        file.write('\n], "traceName": "large"}')
    assert path.stat().st_size > 2 * (1 << 22)
    tracemalloc.start()
    try:
        tables = kineto.read(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(tables["ops"]) == 16_000
    assert peak < 3 * path.stat().st_size


def test_a_cut_large_trace_names_its_last_line(tmp_path):
    path = tmp_path / "cut.json"
    path.write_text('{"traceEvents": [\n' + ",\n".join(['{"ph": "X", "cat": "cpu_op", "ts": 1}'] * 5))
    with pytest.raises(BadFile, match=r"cut.json:6: .*the file is cut"):
        kineto.read(path)


def test_events_and_what_stands_beside_them(tmp_path):
    path = tmp_path / "x.json"
    path.write_text('\ufeff {"a": {"b": [1]}, "traceEvents": [1, {"c": 2},\n "d"], "e": -1.5}', encoding="utf-8")
    trace = TraceFile(path)
    assert [*trace] == [1, {"c": 2}, "d"]
    assert trace.about == {"a": {"b": [1]}, "e": -1.5}


@pytest.mark.parametrize(
    "text", ['{"traceEvents": [1', '{"traceEvents": [1]', '{"a" 1}', "[1, nope]", "7", "[" * 100_000]
)
def test_no_json_is_a_bad_file(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(BadFile, match=r"x\.json"):
        list(TraceFile(path))
