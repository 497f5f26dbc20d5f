# SPDX-License-Identifier: MIT
"""Time to make busy time, and a trace, of a GPU's records.

    python benchmarks/instruments/bench_activity.py [--kernels 1000000]

No GPU is needed: the records are made here, in CUPTI's layout, and walked by CUPTI where it is installed. The peers are
pandas (sort, running maximum, group), a loop in Python, and the way by torch.profiler: its JSON trace, read back.
"""

from __future__ import annotations

import argparse
import ctypes
import io
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))
from dnnsuite import _C, host
from dnnsuite.errors import Unavailable
from dnnsuite.profiler.activity import TABLES, idle_gaps, utilization
from dnnsuite.profiler.activity.intervals import length_ns, union
from dnnsuite.profiler.activity.tables import tables_of
from dnnsuite.profiler.trace import export_trace
from timing import report

# Of CUpti_ActivityKernel10 and CUpti_ActivityAPI: the fields that are written here, at their offsets.
KERNEL = np.dtype(
    {
        "names": ["kind", "start", "end", "stream", "correlation", "name"],
        "formats": ["u4", "u8", "u8", "u4", "u4", "u8"],
        "offsets": [0, 16, 24, 48, 92, 104],
        "itemsize": 216,
    }
)
CALL = np.dtype(
    {
        "names": ["kind", "function", "start", "end", "thread", "correlation"],
        "formats": ["u4", "u4", "u8", "u8", "u4", "u4"],
        "offsets": [0, 4, 8, 16, 28, 32],
        "itemsize": 40,
    }
)
NAMES = [
    b"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1",
    b"_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_",
    b"ncclDevKernel_AllReduce_Sum_f32_RING_LL",
]


def times(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Begins and ends of kernels on two streams: 4 µs each, gaps of about 1 µs, every tenth overlaps."""
    random = np.random.default_rng(0)
    begins = np.cumsum(random.integers(3000, 7000, count)) + 10**15
    return begins, begins + random.integers(2000, 6000, count)


def records(count: int, texts: list[ctypes.c_char_p]) -> bytes:
    """Records as CUPTI would write them for `count` kernels and the calls that launched them."""
    begins, ends = times(count)
    kernels, calls = np.zeros(count, KERNEL), np.zeros(count, CALL)
    kernels["kind"], kernels["start"], kernels["end"] = 10, begins, ends
    kernels["stream"], kernels["correlation"] = np.arange(count) % 2 + 7, np.arange(count)
    addresses = np.array([ctypes.cast(text, ctypes.c_void_p).value for text in texts], np.uint64)
    kernels["name"] = addresses[np.arange(count) % len(texts)]
    calls["kind"], calls["function"], calls["thread"] = 5, 211, 77
    calls["start"], calls["end"], calls["correlation"] = begins - 20_000, begins - 18_500, np.arange(count)
    return kernels.tobytes() + calls.tobytes()


def by_pandas(begins: np.ndarray, ends: np.ndarray) -> int:
    """Busy time as trace analyses in pandas have it."""
    table = pd.DataFrame({"begin": begins, "end": ends}).sort_values("begin")
    group = (table["begin"] > table["end"].cummax().shift()).cumsum()
    merged = table.groupby(group).agg({"begin": "min", "end": "max"})
    return int((merged["end"] - merged["begin"]).sum())


def by_loop(begins: np.ndarray, ends: np.ndarray) -> int:
    """Busy time by a loop."""
    total, reach = 0, -1
    for begin, end in sorted(zip(begins.tolist(), ends.tolist(), strict=True)):
        total += max(0, end - max(begin, reach))
        reach = max(reach, end)
    return total


def trace_text(tables: dict[str, pd.DataFrame]) -> str:
    """The same kernels and calls as torch.profiler writes them."""
    events = [
        {
            "ph": "X",
            "cat": category,
            "name": str(row.name_),
            "pid": 0,
            "tid": row.track,
            "ts": row.t0_ns / 1000,
            "dur": (row.t1_ns - row.t0_ns) / 1000,
            "args": {"correlation": row.correlation, "device": 0},
        }
        for category, table in (
            ("kernel", tables["kernels"].rename(columns={"name": "name_", "stream": "track"})),
            ("cuda_runtime", tables["api"].rename(columns={"function": "name_", "thread": "track"})),
        )
        for row in table[["name_", "track", "t0_ns", "t1_ns", "correlation"]].itertuples()
    ]
    return json.dumps({"traceEvents": events})


def busy_of_text(text: str) -> int:
    """Busy time from a trace of torch.profiler."""
    events = pd.DataFrame([event for event in json.loads(text)["traceEvents"] if event["cat"] == "kernel"])
    begins = (events["ts"] * 1000).round().astype(np.int64).to_numpy()
    return by_pandas(begins, begins + (events["dur"] * 1000).round().astype(np.int64).to_numpy())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=int, default=1_000_000, help="intervals of the first line")
    count = parser.parse_args().kernels
    begins, ends = times(count)
    busy_time(begins, ends)
    host.register_vendor_folders()
    try:
        _C.cupti_function_name(1, 211)
    except Unavailable as error:
        print(f"records: {error}")
        return
    few = min(count, 20_000)
    of_records(few, [(int(begins[0]), int(ends[few - 1]))])


def busy_time(begins: np.ndarray, ends: np.ndarray) -> None:
    """Time the union of intervals against pandas and a loop."""
    count = len(begins)
    assert length_ns(union(begins, ends)) == by_pandas(begins, ends) == by_loop(begins, ends)
    mixed = np.random.default_rng(1).permutation(count)
    for title, order in (("busy time, in order", slice(None)), ("busy time, not in order", mixed)):
        ran, done = begins[order], ends[order]
        report(
            f"{title}, {count} kernels",
            {
                "union": lambda ran=ran, done=done: length_ns(union(ran, done)),
                "pandas": lambda ran=ran, done=done: by_pandas(ran, done),
                "loop": lambda ran=ran, done=done: by_loop(ran, done),
            },
            rounds=3,
        )


def of_records(few: int, window: list[tuple[int, int]]) -> None:
    """Time the decoder, idle gaps and the trace of `few` kernels against torch.profiler's JSON."""
    texts = [ctypes.c_char_p(name) for name in NAMES]
    buffer = records(few, texts)

    def read() -> dict[str, pd.DataFrame]:
        part = _C.decode_activity(buffer)
        return tables_of(part["tables"], part["strings"], _C.cupti_function_name)

    tables = read()
    text = trace_text(tables)
    ours = int(utilization(tables["kernels"], window)["kernel_ns"].iloc[0])
    assert ours == busy_of_text(text), (ours, busy_of_text(text))
    report(
        f"records to busy time, {few} kernels",
        {"decode": lambda: utilization(read()["kernels"], window), "torch.profiler's JSON": lambda: busy_of_text(text)},
        rounds=3,
    )
    report(
        f"idle gaps with the host's calls, {few} kernels",
        {
            "idle_gaps": lambda: idle_gaps(tables["kernels"], tables["api"], window),
            "torch.profiler's JSON, parsed only": lambda: json.loads(text),
        },
        rounds=3,
    )
    with TemporaryDirectory() as folder:
        events = json.loads(text)
        report(
            f"trace, {few} kernels",
            {
                "export_trace": lambda: export_trace({t: tables[t] for t in TABLES}, Path(folder) / "t.json"),
                "json.dump": lambda: json.dump(events, io.StringIO()),
            },
            rounds=3,
        )


if __name__ == "__main__":
    main()
