# SPDX-License-Identifier: MIT
"""Suites as tasks of a cluster: processes of this machine, and Debian's own Slurm with two nodes on it."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

import slurm_machine
from dnnsuite import report
from dnnsuite.errors import InvalidArgument, Unavailable
from dnnsuite.suites import run_on_cluster
from dnnsuite.suites._on_cluster import SuiteOnCluster

ASKED = {"plugins": ["suite_toys"], "device": "cpu", "copies": "all", "pin": "affinity"}


@pytest.fixture
def jobs_file(toys, tmp_path):
    """A suite of one job that works and one that fails."""
    path = tmp_path / "pair.json"
    path.write_text(
        json.dumps([{"name": "toy-nap", "cmd": "", "args": {}}, {"name": "toy-suite-nan", "cmd": "", "args": {}}])
    )
    return path


def test_whole_runs_come_first(jobs_file):
    parts = SuiteOnCluster(str(jobs_file), {**ASKED, "repeat": 2, "seed": 5}).parts
    assert [part.name for part in parts] == [
        "toy-nap-run000",
        "toy-suite-nan-run000",
        "toy-nap-run001",
        "toy-suite-nan-run001",
    ]
    assert [part.order["asked"]["seed"] for part in parts] == [5, 5, 6, 6]


def test_processes_of_this_machine(jobs_file, tmp_path):
    out, said = tmp_path / "out", []
    assert not run_on_cluster(
        str(jobs_file), {**ASKED, "repeat": 2}, out, "local", {"timeout_min": 5}, tell=said.append
    )
    entries = report.read([out])
    assert (
        sorted((entry.job, entry.failure) for entry in entries)
        == [("toy-nap", None)] * 2 + [("toy-suite-nan", "nan")] * 2
    )
    summary = (out / "summary.txt").read_text()
    assert summary.count("PASSED") == 2
    assert summary.count("[ 1/ 1] FAILED") == 2
    assert summary.splitlines()[-1].startswith("Total Time")
    assert len(said) == 5
    assert {entry.repeat for entry in entries} == {0}  # each part is a suite of one run
    assert len({entry.seed for entry in entries if entry.job == "toy-nap"}) == 2
    # Again, nothing is left to do.
    said.clear()
    assert not run_on_cluster(str(jobs_file), {**ASKED, "repeat": 2}, out, "local", {}, resume=True, tell=said.append)
    assert said == ["pair: 0 of 4 tasks to submit to local"]


def test_bad_arguments_are_refused_before_anything_is_made(toys, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(InvalidArgument, match="--cluster pbs: accepted: slurm, local, debug"):
        run_on_cluster("toy-nap", ASKED, out, "pbs", {})
    with pytest.raises(InvalidArgument, match=r"--cluster-option.*no_such"):
        run_on_cluster("toy-nap", ASKED, out, "local", {"no_such": 1})
    assert not out.exists()


# submitit's debug executor leaves its logs to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore:unclosed file:ResourceWarning")
def test_other_options_are_not_the_same_suite(toys, tmp_path):
    out = tmp_path / "out"
    assert run_on_cluster("toy-nap", ASKED, out, "debug", {}, tell=lambda line: None)
    with pytest.raises(InvalidArgument, match="was made with asked"):
        run_on_cluster("toy-nap", {**ASKED, "batch_size": 2}, out, "debug", {}, resume=True)


def test_without_slurm_it_says_what_to_do(toys, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="--cluster local"):
        run_on_cluster("toy-nap", ASKED, tmp_path / "out", "slurm", {})


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    if slurm_machine.missing():
        pytest.skip(slurm_machine.missing())
    with slurm_machine.slurm(tmp_path_factory.mktemp("slurm")) as variables, pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        yield


def test_a_job_array_of_slurm(cluster, jobs_file, tmp_path):
    out = tmp_path / "out"
    options = {"slurm_partition": "test", "timeout_min": 5}
    assert not run_on_cluster(str(jobs_file), {**ASKED, "repeat": 2}, out, "slurm", options, tell=lambda line: None)
    entries = report.read([out])
    assert (
        sorted((entry.job, entry.failure) for entry in entries)
        == [("toy-nap", None)] * 2 + [("toy-suite-nan", "nan")] * 2
    )
    assert json.loads((out / "cluster.json").read_text())["status"] == "failed"


def test_ctrl_c_cancels_what_waits_and_runs(cluster, toys, tmp_path):
    out = tmp_path / "out"
    command = [
        sys.executable, "-m", "dnnsuite", "run", "toy-hang", "--plugin", "suite_toys", "--device", "cpu",
        "--repeat", "4", "--copies", "all", "--pin", "affinity", "--out", str(out),
        "--cluster", "slurm", "--cluster-option", "slurm_partition=test",
    ]  # fmt: skip
    _until(lambda: _queue() == [])  # tasks of other tests leave it a moment after their results
    run = subprocess.Popen(command, env=os.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        _until(lambda: _queue().count("RUNNING") == 2)
        run.send_signal(signal.SIGINT)
        assert run.wait(60) == 130
        _until(lambda: _queue() == [])
    finally:
        run.kill()
        run.communicate()
        subprocess.run(["scancel", "--user=root"], check=False)
    assert not list(out.glob("*/runs/[!.]*"))


def _queue():
    said = subprocess.run(
        ["squeue", "--noheader", "--array", "--format=%T"], capture_output=True, text=True, check=True
    )
    return said.stdout.split()


def _until(ready, limit_s=90.0):
    end_s = time.monotonic() + limit_s
    while not ready():
        assert time.monotonic() < end_s, _queue()
        time.sleep(0.2)
