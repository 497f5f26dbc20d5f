# SPDX-License-Identifier: MIT
"""Large traces analysed in stretches, against the same traces held in memory."""

import gzip
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dnnsuite import importers
from dnnsuite._files import OutputError
from dnnsuite.importers import BadFile, large
from dnnsuite.importers.large import RowFile, deal


def event(category: str, name: str, ts: float, dur: float, tid: int = 7, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "ts": ts, "dur": dur, "tid": tid, "args": args}


def gpu_events(steps: int, marked: bool, seed: int = 0) -> list[dict[str, Any]]:
    """Steps of 1 ms on two GPUs: launches, kernels late by up to a step, copies, overhead, operators of two threads."""
    draw, found, number = random.Random(seed), [], 0
    for step in range(steps):
        at = 1000.0 * step
        if marked:
            found.append(event("user_annotation", f"ProfilerStep#{step}", at, 990))
        for place in range(6):
            number += 1
            launch = at + 20 + 150 * place
            found += [
                event("cpu_op", "aten::linear", launch - 5, 60),
                event("cpu_op", f"aten::op{place % 2}", launch - 2, 40),
                event("cpu_op", "aten::add_", launch + 3, 20, tid=8),
                event("cuda_runtime", "cudaLaunchKernel", launch, 4, correlation=number),
                event(
                    "kernel", draw.choice(["gemm_f32", "ncclDevKernel_AllReduce", "relu"]),
                    launch + draw.uniform(5, 900), draw.uniform(1, 200), device=place % 2, stream=7, correlation=number,
                ),
            ]  # fmt: skip
        found.append(event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", at + 950, 100, device=0, bytes=64))
        found.append(event("overhead", "Buffer Flush", at + 990, 30))
    draw.shuffle(found)
    return found


def cpu_events(steps: int, marked: bool) -> list[dict[str, Any]]:
    found = []
    for step in range(steps):
        at = 1000.0 * step
        if marked:
            found.append(event("user_annotation", f"ProfilerStep#{step}", at, 1000))
        found += [
            event("user_annotation", "enumerate(DataLoader)#x.__next__", at, 200),
            event("cpu_op", "aten::linear", at + 300, 500),
            event("cpu_op", "aten::addmm", at + 350, 400),
            event("cpu_op", "aten::mul", at + 320, 100, tid=9),
        ]
    return found


def write(path: Path, events: list[dict[str, Any]]) -> Path:
    path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    return path


@pytest.mark.parametrize("marked", [True, False], ids=["steps", "no steps"])
@pytest.mark.parametrize("make", [gpu_events, cpu_events])
def test_stretches_add_up_to_the_whole(tmp_path, make, marked):
    path = write(tmp_path / "trace.json", make(16, marked))
    whole = importers.load(path)
    expected, found = importers.analyse_trace(whole), large.summarise(path, rows_at_once=120)
    expected.pop("kernels_by_range", None)  # needs all of the ranges at once
    assert {*found.results} == {*expected}
    assert {name: count for name, count in found.rows.items() if count} == {
        name: len(table) for name, table in whole.tables.items() if len(table)
    }
    for name, table in expected.items():
        mine = found.results[name]
        if name == "idle_gaps":  # a cut divides a gap where no step does
            assert mine["gap_ns"].sum() == table["gap_ns"].sum()
            continue
        keys = [column for column in ("device", "name", "class") if column in table]
        left, right = (
            each.astype(dict.fromkeys(keys, str)).sort_values(keys, ignore_index=True) for each in (mine, table)
        )
        pd.testing.assert_frame_equal(left, right, check_dtype=False, check_categorical=False)
        assert mine.attrs["definitions"] == table.attrs["definitions"]


@pytest.mark.parametrize("compared", [1 << 17, 100])
def test_clocks_that_disagree_are_told_and_nothing_is_said_of_the_host(tmp_path, monkeypatch, compared):
    monkeypatch.setattr(large, "COMPARED", compared)
    late = [dict(e, ts=e["ts"] - 5e6) if e["cat"] in ("kernel", "gpu_memcpy") else e for e in gpu_events(16, True)]
    path = write(tmp_path / "trace.json", late)
    whole = importers.load(path)
    expected, found = importers.analyse_trace(whole), large.summarise(path, rows_at_once=120)
    assert [note for note in found.notes if "clocks of host and GPU disagree" in note] == whole.notes
    for name in ("gpu", "kernels_by_name"):
        keys = [column for column in ("device", "name") if column in expected[name]]
        left, right = (
            each[name].astype(dict.fromkeys(keys, str)).sort_values(keys, ignore_index=True)
            for each in (found.results, expected)
        )
        pd.testing.assert_frame_equal(left, right, check_dtype=False, check_categorical=False)
    assert found.results["idle_gaps"]["host_ns"].isna().all()


def test_gaps_are_those_of_the_whole_where_steps_are_marked(tmp_path):
    path = write(tmp_path / "trace.json", gpu_events(15, True))
    expected = importers.analyse_trace(importers.load(path))["idle_gaps"]
    found = large.summarise(path, rows_at_once=150).results["idle_gaps"]
    keys = ["device", "t0_ns", "t1_ns", "gap_ns", "in_calls_ns"]
    pd.testing.assert_frame_equal(
        *(each[keys].sort_values(["t0_ns", "device"], ignore_index=True) for each in (found, expected)),
        check_dtype=False,
    )


def test_tables_are_written_as_they_pass(tmp_path):
    path = write(tmp_path / "trace.json", gpu_events(10, True))
    whole = importers.load(path)
    found = large.summarise(path, tmp_path, rows_at_once=120)
    assert {file.name for file in found.written} >= {"kernels.csv", "api.csv", "ops.csv", "steps.csv"}
    for name in ("kernels", "api", "ops", "memops", "steps"):
        written = pd.read_csv(tmp_path / f"{name}.csv")
        assert written["t0_ns"].tolist() == whole.tables[name]["t0_ns"].tolist()
        assert list(written.columns) == list(whole.tables[name].columns)
        assert {*written.columns} <= {*found.definitions[name]}


def test_a_median_of_many_durations_has_three_digits(tmp_path):
    events = [event("kernel", "k", 20.0 * n, 10 + n / 1000, device=0) for n in range(4200)]
    found = large.summarise(write(tmp_path / "trace.json", events), rows_at_once=1000)
    row = found.results["kernels_by_name"].iloc[0]
    assert (row["calls"], row["least_ns"], row["most_ns"]) == (4200, 10_000, 14_199)
    assert row["median_ns"] == pytest.approx(12_100, rel=0.005)


@pytest.mark.parametrize(
    "content",
    ['{"traceEvents": [', '{"traceEvents": []}', '{"traceEvents": [{"ph": "X", "cat": "kernel", "ts": "x"}]}'],
)
def test_damage_is_named_and_nothing_is_left_behind(tmp_path, monkeypatch, content):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    monkeypatch.setattr("tempfile.tempdir", None)
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(BadFile, match=r"x\.json"):
        large.summarise(path)
    assert [*scratch.iterdir()] == []


def test_what_is_large(tmp_path):
    path = write(tmp_path / "trace.json", cpu_events(2, True))
    assert not large.is_large(path)
    with open(path, "r+b") as file:
        file.seek(0, 2)
        file.truncate(200 << 20)  # a hole
    assert large.is_large(path)
    assert large.is_large(path, "kineto")
    assert not large.is_large(path, "ncu")
    assert not large.is_large(tmp_path)


def test_a_packed_trace_is_large_by_what_it_unpacks_to(tmp_path):
    path = tmp_path / "trace.json.gz"
    text = json.dumps({"traceEvents": cpu_events(2, True)}).encode()
    path.write_bytes(gzip.compress(text))
    assert not large.is_large(path)
    path.write_bytes(gzip.compress(text + b" " * (40 << 20), 0))  # not made smaller: gzip need not work to write it
    assert large.is_large(path)


def test_an_empty_stretch_of_time_has_no_results(tmp_path):
    path = write(tmp_path / "trace.json", [event("user_annotation", "x", 5, 0)])
    assert large.summarise(path).results == {}


def test_rows_are_dealt_out_by_their_begin(tmp_path):
    file = RowFile(tmp_path / "ops", 3)
    rows = [(begin, begin + 5, number) for number, begin in enumerate([30, 10, 20, 11, 29, 35])]
    for row in rows:
        file.extend(row)
    first, second, third = deal({"ops": file}, np.array([20, 30]))
    assert file.count == 6
    assert not file.path.exists()
    assert first["ops"].all().tolist() == [[10, 15, 1], [11, 16, 3]]
    assert second["ops"].all().tolist() == [[20, 25, 2], [29, 34, 4]]
    assert [third["ops"].count, third["ops"].all()[:, 2].tolist()] == [2, [0, 5]]


def test_many_rows_come_in_blocks(tmp_path):
    file = RowFile(tmp_path / "x", 2)
    file.append(np.arange(200_000).reshape(-1, 2))
    blocks = [*file.blocks()]
    assert len(blocks) > 1
    assert np.concatenate(blocks).ravel().tolist() == list(range(200_000))


def test_a_folder_that_is_not_there_is_named(tmp_path):
    file = RowFile(tmp_path / "no" / "x", 2)
    file.extend((1, 2))
    with pytest.raises(OutputError, match="TMPDIR"):
        file.all()
