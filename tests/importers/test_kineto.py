# SPDX-License-Identifier: MIT
import gzip
import json

import pytest

from dnnsuite.importers import BadFile, kineto, nsys
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
    assert {n: list(t.columns) for n, t in mine.items()} == {n: list(t.columns) for n, t in other.items()}


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
