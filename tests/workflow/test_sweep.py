# SPDX-License-Identifier: MIT
"""Whole workflows of toy jobs, with real processes."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from children import assert_ends
from dnnsuite import results
from dnnsuite._runs import facts
from dnnsuite.errors import InvalidArgument, Unavailable
from dnnsuite.workflow import WorkflowReport
from dnnsuite.workflow.outputs import rows
from waiting import text_of

RunToy = Callable[..., WorkflowReport]
SLOW = ["toy-slow", "--plugin", "toy_jobs", "--modes", "serial", "--repeats", "2", "--epochs", "2",
        "--iters-per-epoch", "2"]  # fmt: skip


def command(out: Path, *arguments: str, **options: object) -> "subprocess.Popen[str]":
    argv = [sys.executable, "-m", "dnnsuite.workflow", *arguments, "--out", str(out)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)  # type: ignore[call-overload, no-any-return]


def marked(path: Path) -> int:
    """The process id of the worker that has begun a step."""
    return int(text_of(path))


def test_what_a_finished_workflow_leaves(finished: WorkflowReport) -> None:
    assert finished.ok
    names = sorted(path.name for path in finished.root.iterdir())
    assert names == [".lock", "cpu-toy.csv", "cpu-toy.png", "equality", "results.csv", "runs", "workflow.json"]
    state = json.loads((finished.root / "workflow.json").read_text())
    assert state["status"] == "done"
    assert state["settings"]["seed"] == 7
    assert state["Bs"] == {"serial/fp32": [1], "concurrent/fp32": [2], "hfta/fp32": [2]}
    assert state["equality"]["fp32"]["passed"] is True
    assert "runs on cpu" in state["unavailable"]["mps"]


def test_every_run_is_monitored(finished: WorkflowReport) -> None:
    for path in (finished.root / "runs").iterdir():
        header, *rows = (path / "monitor.csv").read_text().splitlines()
        run = json.loads((path / "run.json").read_text())
        times = [int(row.split(",")[0]) for row in rows]
        assert {"machine.busy_pct", "workers.cpu_pct", "workers.resident_bytes"} <= set(header.split(","))
        assert run["details"]["monitor"]["samples"] == len(rows) >= 2
        if run["window"]["start_ns"] is not None:  # on a busy machine short replicas may never run at the same time
            assert times[0] <= run["window"]["start_ns"] <= run["window"]["stop_ns"] <= times[-1]


def test_a_runs_record(finished: WorkflowReport) -> None:
    (path,) = finished.root.glob("runs/*-toy-concurrent-B2-fp32-r1")
    run = json.loads((path / "run.json").read_text())
    details = run["details"]
    assert (run["version"], run["kind"], run["verdict"]["status"], run["processes"]) == (2, "workflow", "ok", 2)
    assert run["plan_id"] == finished.state["id"]
    assert (details["width"], run["data"], run["seed"]) == (0, "none", details["configs"][0]["seed"])
    assert run["samples"]["files"] == ["idx0/samples.csv", "idx1/samples.csv"]
    assert all((path / file).is_file() for file in run["samples"]["files"])
    assert run["unit"] == "naps"
    assert run["machine"]["cpus"] == os.cpu_count()
    assert {"dnnsuite", "torch", "python"} <= set(run["versions"])
    assert run["window"]["warm_up_rounds"] == 4
    assert run["details"]["together"] == ["serial fp32 B=1", "concurrent fp32 B=2", "hfta fp32 B=2"]
    (speedup,) = (metric for metric in run["metrics"] if metric["name"] == "speedup")
    # Few turns beside other tests may give no interval.
    assert speedup["low"] is None or speedup["low"] < speedup["value"] < speedup["high"]
    first, second = details["configs"]
    assert second["seed"] == first["seed"] + 1
    assert first["hyper"]["lr"] != second["hyper"]["lr"]
    assert [config["threads"] for config in details["configs"]] == [1, 1]
    assert all(replica["process"]["memory_limit_bytes"] > 256 << 20 for replica in details["replicas"])
    (fused,) = finished.root.glob("runs/*-toy-hfta-B2-fp32-r1")
    fused_run = json.loads((fused / "run.json").read_text())
    assert fused_run["details"]["equality"]["passed"] is True
    assert fused_run["details"]["configs"][0]["hyper"]["lr"] == [c["hyper"]["lr"][0] for c in details["configs"]]


def test_timing_csv_has_hftas_columns(finished: WorkflowReport) -> None:
    (path,) = finished.root.glob("runs/*-toy-hfta-B2-fp32-r0")
    lines = (path / "timing.csv").read_text().splitlines()
    assert lines[0] == ",epoch,epoch_start,epoch_stop,num_samples"
    index, epoch, start, stop, samples = lines[2].split(",")
    assert (index, epoch, samples) == ("1", "1", str(2 * 4 * 6))  # B × batch × iterations
    assert time.time() - 3600 < float(start) < float(stop) < time.time()


def test_a_nonempty_directory_is_refused_and_other_settings_too(finished: WorkflowReport, toy_run: RunToy) -> None:
    with pytest.raises(InvalidArgument, match=r"not empty.*--resume.*--out"):
        toy_run("toy", finished.root)
    with pytest.raises(InvalidArgument, match=r"epochs is 5, was 3.*--allow-changed epochs"):
        toy_run("toy", finished.root, resume=True, epochs=5)
    with pytest.raises(InvalidArgument, match=r"the workflow is toy-slow, was toy"):
        toy_run("toy-slow", finished.root, resume=True)


def test_resuming_a_finished_workflow_runs_nothing(finished: WorkflowReport, toy_run: RunToy) -> None:
    before = sorted((finished.root / "runs").iterdir())
    again = toy_run("toy", finished.root, resume=True, repeats=2)
    assert again.ok
    assert sorted((finished.root / "runs").iterdir()) == before


def test_what_an_earlier_version_left_is_not_continued(toy_run: RunToy, tmp_path: Path) -> None:
    out = tmp_path / "out"
    toy_run("toy", out, modes=["serial"], repeats=1)
    state = json.loads((out / "workflow.json").read_text())
    (out / "workflow.json").write_text(json.dumps({k: v for k, v in state.items() if k not in ("identity", "sum")}))
    with pytest.raises(InvalidArgument, match="does not say what decided its numbers; choose another --out"):
        toy_run("toy", out, resume=True)


JOB = """
from dnnsuite import jobs
from toy_jobs import Toy

@jobs.register("toy-mine")
class Mine(Toy):
    def step(self):
        self.doubled = FACTOR * 2
        return super().step()
"""


def test_a_job_whose_code_changed_is_refused_or_its_runs_say_so(toys: None, tmp_path: Path) -> None:
    def run(*more: str) -> "tuple[int, str]":
        job = ["toy-mine", "--plugin", "toy_mine", "--modes", "serial", "--epochs", "2", "--iters-per-epoch", "2"]
        process = command(out, *job, *more, cwd=tmp_path)
        return process.wait(), process.communicate()[1]

    out, source = tmp_path / "out", tmp_path / "toy_mine.py"
    source.write_text(JOB.replace("FACTOR", "1.0"))
    assert run("--repeats", "1")[0] == 0
    source.write_text("# A remark.\n" + JOB.replace("FACTOR", "1.0"))
    assert run("--resume")[0] == 0
    source.write_text(JOB.replace("FACTOR", "4.0"))
    status, said = run("--resume", "--repeats", "2")
    assert (status, "Mine.step" in said, "toy_mine.py:" in said, "--allow-changed code" in said) == (2, *[True] * 3)
    assert "repeats is 2, was 1" in said
    status, said = run("--resume", "--repeats", "2", "--allow-changed", "code", "--allow-changed", "repeats")
    assert status == 0, said
    rates = results.load(out).query("metric == 'throughput' and replica.isna()").sort_values("repeat")
    assert ["Mine.step" in told for told in rates["changed"]] == [False, True]
    assert ["repeats is 2, was 1" in told for told in rates["changed"]] == [False, True]


def test_other_machine_is_refused(finished: WorkflowReport, toy_run: RunToy, monkeypatch: pytest.MonkeyPatch) -> None:
    there = json.loads(json.dumps(finished.state["environment"]))
    there["machine"]["cpu_model"] = "Abacus"
    monkeypatch.setattr(facts, "environment", lambda: there)
    with pytest.raises(InvalidArgument, match="cpu_model is Abacus"):
        toy_run("toy", finished.root, resume=True)


def test_memory_decides_how_many_fit(toy_run: RunToy, tmp_path: Path) -> None:
    report = toy_run("toy-hungry", tmp_path / "out", modes=["hfta"], preset="paper")
    search = report.state["search"]["hfta/fp32"]
    assert [(t["B"], t["failure"]) for t in search["tried"]] == [(1, None), (2, None), (4, "oom"), (3, "oom")]
    assert report.state["Bs"] == {"hfta/fp32": [1, 2]}
    assert report.ok


def test_more_than_fits_is_a_failed_run(toy_run: RunToy, tmp_path: Path) -> None:
    report = toy_run("toy-hungry", tmp_path / "out", modes=["hfta"], plan=["3"])
    assert not report.ok
    assert report.summary is not None
    failures = {(row["mode"], row["B"]): row["failure"] for row in report.summary.to_dict("records")}
    assert failures[("hfta", 3)] == "oom"
    assert not list((tmp_path / "out").glob("*.png"))


@pytest.mark.parametrize(("job", "failure"), [("toy-nan", "nan"), ("toy-crash", "crash")])
def test_failures_are_recorded(job: str, failure: str, toy_run: RunToy, tmp_path: Path) -> None:
    report = toy_run(job, tmp_path / "out", modes=["serial"])
    assert not report.ok
    assert failure in report.problems[0]
    (path,) = (tmp_path / "out" / "runs").iterdir()
    run = json.loads((path / "run.json").read_text())
    assert (run["verdict"]["status"], run["verdict"]["failure"]) == ("failed", failure)


def test_unequal_arrays_are_not_measured(toy_run: RunToy, tmp_path: Path) -> None:
    report = toy_run("toy-unequal", tmp_path / "out", modes=["serial", "hfta"], plan=["1"])
    assert "equality check failed" in report.problems[0]
    assert not list(tmp_path.glob("out/runs/*hfta*"))
    assert report.state["equality"]["fp32"]["max_relative_error"] == 0.5


@pytest.mark.parametrize(("steps", "counted", "early"), [(6, 6, False), (1, 1, False), (10**9, 2000, True)])
def test_steps_are_rated_once_they_run_as_all_further_ones_will(
    toy_run: RunToy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int, counted: int, early: bool
) -> None:
    monkeypatch.setenv("TOY_SETTLES", str(steps))
    report = toy_run("toy-settles", tmp_path / "out", modes=["serial"], epochs=2, iters_per_epoch=2, repeats=1)
    (path,) = (tmp_path / "out" / "runs").glob("*/run.json")
    (replica,) = json.loads(path.read_text())["details"]["replicas"]
    assert 1 / replica["losses"][0] == pytest.approx(counted + 4)  # its own four come after
    (row,) = rows(report.summary, report.state)
    assert ("rated before" in row["status"]) == early


def test_no_mode_available(toy_run: RunToy, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="MPS needs an NVIDIA GPU"):
        toy_run("toy", tmp_path / "out", modes=["mps"])


def test_a_killed_worker_is_recorded_and_resume_repeats_it(toys: None, toy_run: RunToy, tmp_path: Path) -> None:
    out, marker = tmp_path / "out", tmp_path / "marker"
    process = command(out, *SLOW, env={**os.environ, "TOY_MARKER": str(marker)})
    os.kill(marked(marker), signal.SIGKILL)
    stdout, stderr = process.communicate()
    assert process.returncode == 1
    assert "killed (a signal from outside ended a worker)" in stderr
    assert "1 failed" in stdout
    table = results.load(out)
    rates = table[table["replica"].isna() & (table["metric"] == "throughput")]
    assert sorted(rates["status"]) == ["failed", "ok"]
    assert len(list(out.glob("runs/*/monitor.csv"))) == 2  # what was observed of the killed one, too
    report = toy_run("toy-slow", out, resume=True)
    assert report.ok
    assert len(list((out / "runs").iterdir())) == 3
    assert report.summary is not None
    assert report.summary[["runs", "failed"]].values.tolist() == [[2, 1]]


def test_interrupted_twice_then_resumed(toys: None, toy_run: RunToy, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for number, status, more in ((signal.SIGINT, 130, []), (signal.SIGTERM, 143, ["--resume"])):
        marker = tmp_path / number.name
        process = command(out, *SLOW, *more, env={**os.environ, "TOY_MARKER": str(marker)})
        worker = marked(marker)
        process.send_signal(number)
        _, stderr = process.communicate()
        assert process.returncode == status
        assert f"interrupted by {number.name}" in stderr
        assert f"dnnsuite workflow toy-slow --resume --out {out}" in stderr
        assert not psutil.pid_exists(worker)
        assert [path.name for path in (out / "runs").iterdir() if path.name.startswith(".")] == []
    report = toy_run("toy-slow", out, resume=True)
    assert report.ok
    assert report.summary is not None
    assert report.summary["runs"].tolist() == [2]


def test_a_killed_workflow_leaves_no_worker(toys: None, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    process = command(tmp_path / "out", *SLOW, env={**os.environ, "TOY_MARKER": str(marker)})
    worker = marked(marker)
    process.kill()
    process.communicate()
    assert_ends(worker)


def test_a_full_disk_keeps_finished_runs(toys: None, tmp_path: Path) -> None:
    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (256 << 10, 256 << 10))

    out = tmp_path / "out"
    arguments = ["toy-noisy", "--plugin", "toy_jobs", "--modes", "serial"]
    process = command(out, *arguments, preexec_fn=small_files)
    stdout, stderr = process.communicate()
    assert process.returncode == 2
    assert stdout == ""
    assert "File too large" in stderr
    assert "Traceback" not in stderr
    assert "0 finished runs are kept" in stderr
