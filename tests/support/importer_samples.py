# SPDX-License-Identifier: MIT
"""Files of other tools for tests: those in fixtures/importers, written after the documented formats, and SQLite."""

import json
import sqlite3
from pathlib import Path

FIXTURES = Path(__file__).parent.parent / "fixtures/importers"

PID, TID = 4242, 77
OTHER_PID = 5151


def identity(pid, tid=0):
    """nsys' serialised id of a thread, or of a process (thread 0)."""
    return pid << 24 | tid


def sqlite(path, tables):
    """Tables {name: (columns, rows)} as an SQLite file."""
    path.unlink(missing_ok=True)
    db = sqlite3.connect(path)
    for name, (columns, rows) in tables.items():
        names = ", ".join(f'"{column}"' for column in columns.split())
        db.execute(f'CREATE TABLE "{name}" ({names})')
        marks = ", ".join("?" * len(columns.split()))
        db.executemany(f'INSERT INTO "{name}" VALUES ({marks})', rows)
    db.commit()
    db.close()
    return path


def new_schema():
    """What nsys of these years exports: NULLs, several processes, registered strings, driver calls, graphs."""
    one, two = identity(PID), identity(OTHER_PID)
    return {
        "StringIds": (
            "id value",
            [
                (1, "sm90_xmma_gemm_f32_f32"),
                (2, "ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
                (3, "cudaLaunchKernel_v7000"),
                (4, "cuLaunchKernel"),
                (5, "step"),
                (6, "CUDA profiling overhead"),
            ],
        ),
        "CUPTI_ACTIVITY_KIND_KERNEL": (
            "start end deviceId contextId streamId correlationId globalPid demangledName shortName registersPerThread "
            "gridX gridY gridZ blockX blockY blockZ staticSharedMemory dynamicSharedMemory "
            "localMemoryPerThread graphNodeId",
            [
                (2000, 3000, 0, 1, 7, 11, one, 1, 1, 128, 4, 2, 1, 32, 1, 1, 16, 1024, 0, None),
                (1000, 1500, 1, 1, 7, 11, two, 2, 2, 64, 1, 1, 1, 512, 1, 1, 0, 0, 0, None),
            ],
        ),
        "CUPTI_ACTIVITY_KIND_MEMCPY": (
            "start end deviceId contextId streamId correlationId globalPid bytes copyKind srcKind dstKind "
            "srcDeviceId dstDeviceId graphNodeId",
            [(500, 900, 0, 1, 7, 10, one, 4096, 1, 1, 2, None, 0, None)],
        ),
        "CUPTI_ACTIVITY_KIND_MEMSET": (
            "start end deviceId contextId streamId correlationId globalPid value bytes graphNodeId memKind",
            [(950, 960, 0, 1, 7, 12, one, 0, 64, None, 2)],
        ),
        "CUPTI_ACTIVITY_KIND_RUNTIME": (
            "start end eventClass globalTid correlationId nameId returnValue",
            [
                (400, 450, 0, identity(PID, TID), 10, 3, 0),
                (1600, 1700, 0, identity(PID, TID), 11, 3, 0),
                (700, 800, 1, identity(OTHER_PID, 5), 11, 4, 1),
            ],
        ),
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": (
            "start end deviceId contextId streamId correlationId globalPid syncType eventId",
            [(3000, 3100, 0, 1, 7, 13, one, 3, None)],
        ),
        "NVTX_EVENTS": (
            "start end eventType rangeId category color text globalTid textId domainId uint64Value int64Value",
            [
                (0, None, 75, None, None, None, "dnnsuite", identity(PID, TID), None, 9, None, None),
                (300, 3200, 59, None, 2, None, None, identity(PID, TID), 5, 9, 3, None),
                (350, 360, 60, None, None, None, "a text", identity(PID, TID), None, 0, None, None),
                (370, None, 34, None, None, None, "mark", identity(PID, TID), None, 0, None, None),
                (380, None, 59, None, None, None, "never ended", identity(PID, TID), None, 0, None, None),
            ],
        ),
        "PROFILER_OVERHEAD": (
            "start end globalTid correlationId nameId returnValue",
            [(100, 200, identity(PID, TID), 0, 6, 0)],
        ),
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": (
            "start end deviceId graphId graphExecId contextId streamId correlationId globalPid",
            [(4000, 5000, 0, 6, 7, 1, 7, 20, one)],
        ),
    }


def old_schema():
    """An early export: no NULL, texts in NVTX's rows, neither eventClass nor memory kinds of memsets."""
    one = identity(PID)
    return {
        "StringIds": ("id value", [(1, "volta_sgemm"), (3, "cudaLaunchKernel")]),
        "CUPTI_ACTIVITY_KIND_KERNEL": (
            "start end deviceId contextId streamId correlationId globalPid shortName gridX gridY gridZ",
            [(20, 30, 0, 1, 7, 1, one, 1, 1, 1, 1)],
        ),
        "CUPTI_ACTIVITY_KIND_MEMSET": (
            "start end deviceId contextId streamId correlationId globalPid value bytes",
            [(31, 32, 0, 1, 7, 2, one, 0, 64)],
        ),
        "CUPTI_ACTIVITY_KIND_RUNTIME": (
            "start end globalTid correlationId nameId returnValue",
            [(10, 15, identity(PID, TID), 1, 3, 0)],
        ),
        "NVTX_EVENTS": ("start end eventType text globalTid", [(5, 40, 59, "train", identity(PID, TID))]),
    }


def nvvp_schema():
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


def kineto(path):
    """A trace as torch.profiler writes them, of a GPU."""
    events = [
        {"ph": "M", "name": "process_name", "pid": 1, "tid": 0},
        {"ph": "X", "cat": "kernel", "name": "sm90_xmma_gemm_f32_f32", "pid": 0, "tid": 7, "ts": 20.5, "dur": 4.25,
         "args": {"device": 0, "context": 1, "stream": 7, "correlation": 11, "registers per thread": 128,
                  "shared memory": 1024, "grid": [4, 2, 1], "block": [32, 1, 1]}},
        {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pinned -> Device)", "pid": 0, "tid": 7, "ts": 10,
         "dur": 2, "args": {"device": 0, "context": 1, "stream": 7, "correlation": 10, "bytes": 4096}},
        {"ph": "X", "cat": "gpu_memset", "name": "Memset (Device)", "pid": 0, "tid": 7, "ts": 13, "dur": 1,
         "args": {"device": 0, "context": 1, "stream": 7, "correlation": 12, "bytes": 64}},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 77, "ts": 15.001, "dur": 1,
         "args": {"cbid": 211, "correlation": 11}},
        {"ph": "X", "cat": "user_annotation", "name": "forward", "pid": 1, "tid": 77, "ts": 5, "dur": 30, "args": {}},
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 77, "ts": 14, "dur": 3, "args": {}},
    ]  # fmt: skip
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}), encoding="utf-8")
    return path
