# SPDX-License-Identifier: MIT
import math
from pathlib import Path
from typing import Any

import pytest

from dnnsuite import results
from dnnsuite._runs.record import Machine
from dnnsuite.errors import InvalidArgument
from dnnsuite.results import UnlikeRuns
from dnnsuite.results.monitor import load_monitors, summarize_monitors
from result_tables import FIXTURES, write_dcgm, write_monitored


def percent(value: float) -> list[tuple[float, float]]:
    return [(0.0, value), (1.0, value)]


def test_means_over_repeats_with_their_interval(tmp_path: Path) -> None:
    for repeat, value in enumerate((10.0, 20.0, 30.0)):
        write_monitored(tmp_path, f"r{repeat}", percent(value), repeat=repeat)
    write_monitored(tmp_path, "b2", percent(80.0), mode="hfta", B=2)
    summary = summarize_monitors(load_monitors(tmp_path))
    serial, fused = summary[summary["metric"] == "busy"].to_dict("records")
    half = 4.302652729696142 * 10 / math.sqrt(3)  # Student's t of two degrees of freedom
    assert (serial["mean"], serial["high"], serial["runs"]) == (20.0, pytest.approx(20 + half), 3)
    assert serial["low"] == 0.0  # nothing is used less than not at all
    assert serial["peak"] == 30.0
    assert (fused["mode"], fused["B"], fused["mean"]) == ("hfta", 2, 80.0)
    assert math.isnan(fused["low"])


def test_copies_of_a_job_are_one_run(tmp_path: Path) -> None:
    suite: dict[str, Any] = {"kind": "suite", "details": {"seed_unit": {"name": "images", "items": 1}, "suite": "x"}}
    for copy, value in enumerate((10.0, 30.0)):
        write_monitored(tmp_path, f"c{copy}", percent(value), mode="shares", share=str(copy), copies=2, **suite)
    summary = results.summarize_monitors(results.load_monitors(tmp_path))
    (row,) = summary[summary["metric"] == "busy"].to_dict("records")
    assert (row["mean"], row["runs"]) == (20.0, 1)
    alone = {"mode": "shares", "share": "0", "copies": 2, **suite}  # the record of the other copy is lost
    write_monitored(tmp_path, "c2", percent(90.0), repeat=1, **alone)
    assert len(results.load_monitors(tmp_path)) == 2 * len(summary)


def test_runs_without_samples_are_counted_and_none_at_all_is_refused(tmp_path: Path) -> None:
    write_monitored(tmp_path, "one", percent(5.0))
    (write_monitored(tmp_path, "two", percent(5.0), repeat=1) / "monitor.csv").unlink()
    (write_monitored(tmp_path, "bad", percent(5.0), repeat=2) / "monitor.csv").write_text("x")
    table = load_monitors(tmp_path)
    assert len(table) == 3
    assert table.attrs["problems"][1] == "1 of 3 runs have no monitor.csv"
    assert "bad" in table.attrs["problems"][0]
    with pytest.raises(InvalidArgument, match=r"no run in it has a monitor\.csv .*6 of 6 runs"):
        load_monitors(FIXTURES / "workflow")


def test_unlike_machines_are_taken_together_only_when_asked(tmp_path: Path) -> None:
    for number, cpu in enumerate(("EPYC", "Xeon")):
        write_monitored(tmp_path, cpu, percent(5.0), machine=Machine(cpu_model=cpu, cpus=2), repeat=number)
    with pytest.raises(UnlikeRuns, match="processor differs"):
        load_monitors(tmp_path)
    assert len(load_monitors(tmp_path, allow_unlike=True)) == 6


def test_a_tree_of_hftas(tmp_path: Path) -> None:
    write_dcgm(tmp_path / "bert" / "run0" / "cuda" / "v100" / "amp" / "hfta" / "B4", [0.0, *[40.0] * 8, 100.0])
    summary = summarize_monitors(load_monitors(tmp_path))
    (row,) = summary[summary["metric"] == "gpu_util"].to_dict("records")
    assert (row["job"], row["mode"], row["precision"], row["B"], row["mean"]) == ("bert", "hfta", "amp", 4, 40.0)
