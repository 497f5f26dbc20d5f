# SPDX-License-Identifier: MIT
"""Traces of several ranks together, and two against each other."""

import json

import pytest

from dnnsuite import importers
from dnnsuite.errors import InvalidArgument
from importer_samples import FIXTURES

REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def trace(path, compute_us, collectives=4, rank=None, offset=0.0):
    """Steps of a kernel and a collective that ends for all ranks 1000 us after the step's begin."""
    events = []
    for step in range(collectives):
        at = offset + 1000.0 * step
        for name, begin, length in (("gemm", at, compute_us), (REDUCE, at + compute_us, 1000 - compute_us)):
            event = {"ph": "X", "cat": "kernel", "name": name, "ts": begin, "dur": length, "args": {"device": 0}}
            events.append(event)
    about = {} if rank is None else {"distributedInfo": {"rank": rank, "world_size": 3}}
    path.write_text(json.dumps({"traceEvents": events, **about}))
    return importers.load(path)


def test_the_rank_that_comes_last_is_named_whatever_the_clocks(tmp_path):
    found = importers.merge_ranks([
        trace(tmp_path / "b.json", 900, rank=2, offset=5e8),
        trace(tmp_path / "a.json", 300, rank=0),
        trace(tmp_path / "c.json", 400, rank=1, offset=77),
    ])  # fmt: skip
    assert found.table["rank"].tolist() == [0, 1, 2]
    assert found.straggler == 2
    assert "rank 2 is the straggler" in found.verdict
    assert "last in 4 of 4 collectives" in found.verdict
    assert found.table["compute_ms"].tolist() == pytest.approx([1.2, 1.6, 3.6])
    assert found.table["waited_ms"].tolist() == pytest.approx([2.4, 2.0, 0])
    assert found.table["caused_ms"].tolist() == pytest.approx([0, 0, 2.2])
    assert found.tables["kernels"].groupby("rank").size().tolist() == [8, 8, 8]


def test_ranks_that_do_not_wait_have_no_straggler(tmp_path):
    found = importers.merge_ranks([trace(tmp_path / f"rank-{rank}.json", 500 + rank) for rank in (0, 1)])
    assert found.straggler is None
    assert found.verdict.startswith("no straggler")


def test_without_collectives_the_one_that_computes_longest(tmp_path):
    lone = [trace(tmp_path / f"rank{rank}.json", 999.99 if rank == 3 else 500, collectives=1 + rank) for rank in (1, 3)]
    for each in lone:
        each.tables["kernels"]["class"] = "gemm"
    assert importers.merge_ranks(lone).straggler == 3


def test_what_are_no_ranks_is_refused(tmp_path):
    one = trace(tmp_path / "rank0.json", 5, rank=0)
    with pytest.raises(InvalidArgument, match="two or more"):
        importers.merge_ranks([one])
    with pytest.raises(InvalidArgument, match="file of dcgm"):
        importers.merge_ranks([one, importers.load(FIXTURES / "dmon.txt")])
    (tmp_path / "other").mkdir()
    with pytest.raises(InvalidArgument, match="two of the traces are of rank 0"):
        importers.merge_ranks([one, trace(tmp_path / "other/rank0.json", 6, rank=0)])


def test_two_traces_by_kernel(tmp_path):
    table = importers.compare_traces(trace(tmp_path / "a.json", 200), trace(tmp_path / "b.json", 500))
    assert table[["name", "calls_a", "ms_a", "ms_b", "change_ms"]].values.tolist() == [
        ["gemm", 4, pytest.approx(0.8), pytest.approx(2.0), pytest.approx(1.2)],
        [REDUCE, 4, pytest.approx(3.2), pytest.approx(2.0), pytest.approx(-1.2)],
    ]


def test_files_of_launches_are_compared_too_and_others_are_not():
    new = importers.load(FIXTURES / "nvprof_text.txt")
    table = importers.compare_traces(importers.load(FIXTURES / "nvprof_unified.csv"), new)
    saxpy = table[table["name"].str.startswith("saxpy")].iloc[0]
    assert saxpy[["calls_a", "calls_b", "ms_a", "ms_b"]].tolist() == [8, 3, 4, 6]
    with pytest.raises(InvalidArgument, match="no times of kernels"):
        importers.compare_traces(new, importers.load(FIXTURES / "dmon.txt"))
