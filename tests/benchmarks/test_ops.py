# SPDX-License-Identifier: MIT
"""benchmarks/ops: what is reached of the roof, the table, every operator's cases, and the command itself."""

import csv
import importlib
import subprocess
import sys
from pathlib import Path

import pytest
import run
import torch
import work

import forked_program
import timing
from dnnsuite.errors import Unavailable
from one_device import OneDevice
from timing import Rate

SCRIPT = Path(run.__file__)


def test_rates_of_ours_and_a_peer(peaks):
    case = timing.Case("op", "B=1", {}, work.Work(100.0, 25.0), {"peer": "bf16"})
    timings = {"own": timing.Timing(2.0, 4.0), "peer": timing.Timing(4.0, 4.0)}
    own, peer = timing.rates(case, timings, timing.Place("cpu", peaks, timing.thread_seconds))
    assert (own.gflop_per_s, own.gb_per_s) == pytest.approx((50e-9, 12.5e-9))
    assert (own.roof_pct, own.bound) == (50.0, "compute")  # 1 s at 100 FLOP/s
    assert peer.bound == "L1"  # with bf16's peak, its bytes take longer
    assert peer.roof_pct == pytest.approx(100 * 0.5 / 4)
    assert (own.ratio, peer.ratio, peer.median_ratio) == (1.0, 2.0, 1.0)


def test_markdown():
    own = Rate("norm", "B=8 4x4", "own channels last", 12.34, 1.26, 3.0, 49.6, "L2", 1.0, 1.0, "cpu")
    peer = Rate("norm", "B=8 4x4", "torch", 24.7, 0.6, 1.5, 25.0, "L2", 2.0, 2.1, "cpu")
    assert run.markdown([[own, peer]], "footer").splitlines()[2:] == [
        "| norm | B=8 4x4, channels last | 12.3 | 1.3 | 3.0 | 50 % (L2) | torch 2.00 |",
        "",
        "footer",
    ]


@pytest.mark.parametrize("name", run.NAMES)
def test_every_operator_has_cases_that_run(name):
    case = next(iter(importlib.import_module(f"bench_{name}").cases(2)))
    assert len(case.variants) > 1
    assert case.work.flops > 0
    assert case.work.bytes > 0
    for variant in case.variants.values():
        variant()


@pytest.mark.parametrize("name", [name for name in run.NAMES if name != "optimizer"])
def test_a_case_has_all_its_tensors_where_it_is_placed(name):
    """The optimizers look at their values, which meta tensors do not have."""
    with OneDevice("meta"):
        case = next(timing.placed(importlib.import_module(f"bench_{name}").cases(2), "meta"))
        for variant in case.variants.values():
            variant()


@pytest.mark.gpu
@pytest.mark.parametrize("name", [name for name in run.NAMES if name != "softmax"])  # of CPUs alone
def test_ours_runs_on_a_gpu(name):
    case = next(timing.placed(importlib.import_module(f"bench_{name}").cases(2), "cuda:0"))
    assert timing.able(case)


def test_what_cannot_run_is_left_out(capsys):
    def fails():
        raise RuntimeError("no kernel\nfor this")

    case = timing.Case("op", "B=1", {"own": int, "peer": fails}, work.Work(1.0, 1.0))
    assert list(timing.able(case)) == ["own"]
    assert capsys.readouterr().err == "op B=1, peer: left out: no kernel\n"
    case = timing.Case("op", "B=1", {"own": fails, "peer": int}, work.Work(1.0, 1.0))
    assert timing.able(case) == {}


def test_the_command_end_to_end(tmp_path):
    arguments = ["rms_norm", "--models", "1", "--rounds", "2", "--segment", "0.001", "--out", tmp_path]
    done = forked_program.script(SCRIPT, *map(str, arguments))
    assert done.returncode == 0, done.stderr
    assert "of the" in done.stdout
    with (tmp_path / "ops.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["variant"] for row in rows} == {"own", "loop of torch", "torch stacked"}
    assert all(float(row["roof_pct"]) > 0 for row in rows)
    assert (tmp_path / "ops.md").read_text().count("| rms_norm |") == len(rows) / 3


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_it_says_so(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["run.py", "--device", "cuda"])
    with pytest.raises(Unavailable, match="--device cuda:0"):
        run.main()


@pytest.mark.gpu
def test_the_command_on_a_gpu(tmp_path):
    arguments = ["linear", "--models", "2", "--rounds", "2", "--segment", "0.001", "--device", "cuda"]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments, "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "CUDA events on cuda:0" in (tmp_path / "ops.md").read_text()


def test_an_unknown_name_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["run.py", "softmix"])
    with pytest.raises(SystemExit):
        run.main()
    assert "no benchmark softmix; there are activate, attention, " in capsys.readouterr().err
