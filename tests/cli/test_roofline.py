# SPDX-License-Identifier: MIT
"""`dnnsuite roofline`, with small probes: what it prints, writes and refuses."""

import csv
import json

import pytest

from dnnsuite.cli.app import main
from dnnsuite.profiler.roofline import Contention, peaks
from dnnsuite.profiler.roofline.peaks import CacheLevel

JOB = ["bert", "--batch-size", "2", "--steps", "2", "--warmup", "1", "--threads", "1"]


@pytest.fixture(autouse=True)
def _small_probes(monkeypatch):
    monkeypatch.setattr(peaks, "SIZES", (64,))
    monkeypatch.setattr(peaks, "GEMM_S", 0.01)
    monkeypatch.setattr(
        peaks, "levels", lambda cpus: [CacheLevel("L1", 1 << 15, 1 << 13), CacheLevel("memory", 1 << 60, 1 << 21)]
    )
    monkeypatch.setattr(peaks, "probe_contention", lambda threads, key: Contention(4.0, 75.0, 1))  # not any better


def status(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(["roofline", *arguments])
    return ended.value.code


def test_the_roofs_alone(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("DNNSUITE_CACHE", str(tmp_path))  # or another test has measured them already
    assert status("--threads", "1") == 0
    said = capsys.readouterr()
    for word in ("fp32", "bf16", "L1", "memory", "GFLOP/s  matrix product", "GB/s     triad", "not counted"):
        assert word in said.out
    assert "measuring" in said.err


def test_a_job_as_json_and_as_files(capsys, tmp_path):
    assert status(*JOB, "--json", "--out", str(tmp_path / "new")) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["job"] == "bert"
    assert record["summary"]["steps"] == 2
    assert record["summary"]["flops_per_step"] > 1e6
    names = [row["name"] for row in record["operators"]]
    assert {"aten::mm", "aten::addmm"} <= set(names)
    assert set(record["operators"][0]) == set(record["definitions"])
    assert record["says"]
    assert [path.name for path in sorted((tmp_path / "new").iterdir())] == [
        "roofline.csv",
        "roofline.json",
        "roofline.png",
    ]
    with open(tmp_path / "new/roofline.csv", newline="") as file:
        assert [row["name"] for row in csv.DictReader(file)] == names
    assert (tmp_path / "new/roofline.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "new/roofline.json").read_text())["operators"] == record["operators"]


def test_a_job_as_a_table(capsys, monkeypatch):
    calm = Contention(1.0, 0.0, 1)
    monkeypatch.setattr("dnnsuite.profiler.roofline.probe_contention", lambda threads, key: calm)
    assert status(*JOB, "--B", "1") == 0
    said = capsys.readouterr().out
    assert "by wall time" in said
    assert "by the CPU time it got" in said
    assert "dnnsuite::linear" in said
    assert "most is to be won in" in said


def test_busy_neighbours_are_what_is_said_first(capsys, monkeypatch):
    from dnnsuite.cli import roofline as _roofline_command

    busy = Contention(4.0, 75.0, 1)
    monkeypatch.setattr("dnnsuite.profiler.roofline.probe_contention", lambda threads, key: busy)
    monkeypatch.setattr(_roofline_command, "MOSTLY", 1e9)  # as if next to nothing of the CPUs had been ours
    assert status(*JOB) == 0
    assert "other work used the CPUs" in capsys.readouterr().out


def test_what_is_refused(capsys):
    assert status("no_such_job") == 2
    assert "no job 'no_such_job'; available" in capsys.readouterr().err
    assert status("--threads", "4096") == 2
    assert "the CPUs allowed; got 4096" in capsys.readouterr().err
    assert status("bert", "--steps", "0") == 2
    assert status("--help") == 0
