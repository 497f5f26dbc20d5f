# SPDX-License-Identifier: MIT
"""The database of nvprof and nvvp, which has CUPTI's names as nsys' has, and other columns."""

import pytest

from dnnsuite import importers
from dnnsuite.importers import BadFile, nvvp
from importer_samples import sqlite


def session():
    """Tables as nvprof writes them: a kernel, a copy, a migration and a fault, calls, a range, an overhead."""
    return {
        "StringTable": ("_id_ value", [(0, "-- null --"), (1, "volta_sgemm_128x64_nn"), (2, "step")]),
        "Version": ("version", [(12,)]),
        "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL": (
            "_id_ start end deviceId contextId streamId correlationId name registersPerThread gridX gridY gridZ blockX "
            "blockY blockZ staticSharedMemory dynamicSharedMemory localMemoryPerThread",
            [(1, 2000, 3000, 0, 1, 7, 11, 1, 128, 4, 2, 1, 32, 1, 1, 16, 1024, 0)],
        ),
        "CUPTI_ACTIVITY_KIND_MEMCPY": (
            "_id_ copyKind srcKind dstKind bytes start end deviceId contextId streamId correlationId",
            [(1, 1, 1, 3, 4096, 500, 900, 0, 1, 7, 10)],
        ),
        "CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER": (
            "_id_ counterKind value start end address srcId dstId streamId processId",
            [(1, 1, 65536, 1000, 1200, 0, 0, 0, 7, 42), (2, 3, 1, 1100, 1150, 0, 0, 0, 0, 42)],
        ),
        "CUPTI_ACTIVITY_KIND_RUNTIME": (
            "_id_ cbid start end processId threadId correlationId returnValue",
            [(1, 211, 1500, 1600, 42, 77, 11, 0)],
        ),
        "CUPTI_ACTIVITY_KIND_MARKER": (
            "_id_ flags timestamp id objectKind objectId name domain",
            [(1, 2, 400, 5, 2, b"", 2, 0), (2, 4, 3100, 5, 2, b"", 0, 0)],
        ),
        "CUPTI_ACTIVITY_KIND_OVERHEAD": (
            "_id_ overheadKind objectKind objectId start end",
            [(1, 2 << 16, 1, b"", 100, 150)],
        ),
    }


def test_it_is_told_from_nsys_and_read(tmp_path):
    found = importers.load(sqlite(tmp_path / "prof.nvvp", session()))
    assert found.kind == "nvvp"
    kernel = found.tables["kernels"].iloc[0]
    assert kernel[["name", "class", "t0_ns", "grid_y", "block_x", "dynamic_shared_bytes"]].tolist() == [
        "volta_sgemm_128x64_nn", "gemm", 2000, 2, 32, 1024,
    ]  # fmt: skip
    memops = found.tables["memops"]
    assert memops[["operation", "source_memory", "target_memory", "bytes"]].values.tolist() == [
        ["HtoD", "pageable", "device", 4096],
        ["unified HtoD", "managed", "managed", 65536],
    ]
    assert found.tables["api"][["domain", "thread", "correlation"]].values.tolist() == [["runtime", 77, 11]]
    assert found.tables["markers"][["name", "t0_ns", "t1_ns"]].values.tolist() == [["step", 400, 3100]]
    assert found.tables["overhead"]["kind"].tolist() == ["CUPTI instrumentation"]
    assert found.windows == [(100, 3100)]
    assert importers.analyse_trace(found)["gpu"]["kernel_ns"].tolist() == [1000]


def test_values_of_metrics_alone_are_refused_with_the_way_out(tmp_path):
    tables = {name: session()[name] for name in ("StringTable", "Version")}
    tables["CUPTI_ACTIVITY_KIND_METRIC"] = ("_id_ id value correlationId flags", [(1, 2, b"12345678", 3, 0)])
    path = sqlite(tmp_path / "x.nvvp", tables)
    with pytest.raises(BadFile, match="nvprof -i FILE --csv"):
        nvvp.read(path)
    with pytest.raises(BadFile, match="nothing was profiled"):
        nvvp.read(sqlite(path, {name: session()[name] for name in ("StringTable", "Version")}))
