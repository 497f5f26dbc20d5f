# SPDX-License-Identifier: MIT
import pandas as pd
import pytest

from dnnsuite.profiler.roofline import Contention, Peaks


@pytest.fixture
def peaks():
    """A machine of round numbers: 100 GFLOP/s, 10 GB/s from memory, 100 GB/s from a cache of 1 MB."""
    return Peaks(
        {"cpu_model": "round", "torch": "2.13.0"},
        2,
        {"fp32": 100e9, "bf16": 200e9},
        {"L2": 100e9, "memory": 10e9},
        {"L2": 10**6, "memory": (1 << 63) - 1},
        Contention(1.0, 0.0, 2),
        "now",
    )


@pytest.fixture
def ops():
    """Makes a table `ops` of (name, thread, ms, flops, bytes)."""

    def make(*calls, dtype="float"):
        rows, at = [], {}
        for name, thread, ms, flops, moved in calls:
            begin = at.get(thread, 0)
            at[thread] = begin + round(ms * 1e6)
            rows.append((name, "gemm", "forward", 0, thread, 0, begin, at[thread], 0, "", dtype, flops, moved, True))
        return pd.DataFrame(rows, columns=[
            "name", "class", "phase", "step", "thread", "depth", "t0_ns", "t1_ns", "self_ns", "shapes", "dtype",
            "flops", "bytes", "counted",
        ])  # fmt: skip

    return make


@pytest.fixture
def steps():
    """Makes a table `steps_cpu` of (wall ms, CPU ms)."""

    def make(*each):
        return pd.DataFrame([(round(w * 1e6), round(c * 1e6)) for w, c in each], columns=["wall_ns", "cpu_ns"])

    return make
