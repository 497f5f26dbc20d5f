# SPDX-License-Identifier: MIT
"""A workflow whose repeats are divided among devices, with parts of the CPUs in their place."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from dnnsuite import host
from dnnsuite.errors import InvalidArgument
from dnnsuite.workflow import WorkflowReport
from dnnsuite.workflow.nvidia import Tools
from dnnsuite.workflow.settings import resolve

RunToy = Callable[..., WorkflowReport]
pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
OPTIONS = {"modes": ["serial,hfta"], "plan": ["2"], "repeats": 2, "devices": "cpu,cpu", "threads": 2}


def cpus_of_repeats(root: Path) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for path in root.glob("runs/*/run.json"):
        run = json.loads(path.read_text())
        for replica in run["details"]["replicas"]:
            found.setdefault(run["repeat"], set()).update(replica["process"]["cpus_allowed"])
    return found


def test_each_device_makes_a_part_of_the_repeats(toy_run: RunToy, tmp_path: Path) -> None:
    out = tmp_path / "out"
    report = toy_run("toy", out, **OPTIONS)
    assert report.ok, report.problems
    assert report.summary is not None
    assert list(report.summary["runs"]) == [2, 2]
    found = cpus_of_repeats(out)
    assert found[0]
    assert found[1]
    assert found[0].isdisjoint(found[1])
    told = json.loads((out / "devices/cpu-1/spec.json").read_text())
    assert told["task"] == "dnnsuite.workflow.sweep:task"
    state = json.loads((out / "workflow.json").read_text())
    assert state["settings"]["devices"] == ["cpu:0", "cpu:1"]
    assert state["Bs"] == {"serial/fp32": [1], "hfta/fp32": [2]}
    assert state["status"] == "done"
    runs = sorted(out.glob("runs/*/run.json"))
    kept = runs[0].read_bytes()
    shutil.rmtree(runs[-1].parent)
    again = toy_run("toy", out, resume=True)
    assert again.ok
    assert len(list(out.glob("runs/*/run.json"))) == 4
    assert runs[0].read_bytes() == kept
    with pytest.raises(InvalidArgument, match="devices is cpu:0, was cpu:0,cpu:1"):
        toy_run("toy", out, resume=True, devices="cpu")


def started(out: Path) -> "subprocess.Popen[str]":
    """A workflow of slow runs on two devices, of which one has ended."""
    command = [sys.executable, "-m", "dnnsuite.workflow", "toy-slow", "--plugin", "toy_jobs", "--modes", "serial",
               "--epochs", "2", "--iters-per-epoch", "2", "--repeats", "40", "--devices", "cpu,cpu",
               "--out", str(out)]  # fmt: skip
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while not list(out.glob("runs/[!.]*/run.json")) and process.poll() is None:
        time.sleep(0.02)
    return process


def command_of(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:  # it has ended meanwhile
        return ""


def test_an_error_names_its_device_and_ends_the_others(toys: None, tmp_path: Path) -> None:
    process = started(tmp_path / "out")
    children = psutil.Process(process.pid).children(recursive=True)
    second = next(child for child in children if "devices/cpu-1" in command_of(child))  # its own children come after
    second.kill()
    _, said = process.communicate()
    assert process.returncode == 2, said
    assert "cpu:1: the worker was ended by SIGKILL" in said
    assert "finished runs are kept" in said
    assert not psutil.wait_procs(children, timeout=280)[1]


def test_ctrl_c_ends_the_workers_of_all_devices(toys: None, tmp_path: Path) -> None:
    process = started(tmp_path / "out")
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130, said
    assert "finished runs are kept" in said
    assert children
    assert not psutil.wait_procs(children, timeout=280)[1]
    assert list((tmp_path / "out").glob("runs/[!.]*/run.json"))


def test_what_does_not_go_with_devices_is_refused(toys: None, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"plugins": ["toy_jobs"], "devices": ["cpu,cpu"]}
    assert resolve("toy", asked).repeats == 2  # one for each device, where the preset has one
    with pytest.raises(InvalidArgument, match="give one of them"):
        resolve("toy", {**asked, "device": "cpu"})
    with pytest.raises(InvalidArgument, match="measure it on one device"):
        resolve("toy", {**asked, "modes": ["mps"]})
    unlike = [host.Gpu(name, 1 << 36, "580", f"GPU-{name}") for name in ("H100", "A100")]
    monkeypatch.setattr(host, "gpus", lambda: unlike)
    monkeypatch.setattr(host, "torch_has_cuda", lambda: True)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(InvalidArgument, match="A100 and H100"):
        resolve("toy", {**asked, "devices": ["all"]})


def test_tools_are_those_of_the_gpu_that_a_process_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert Tools().gpu == 0
    for visible, gpu in (("3,1", 3), ("GPU-7", "GPU-7")):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert Tools().gpu == gpu
