# SPDX-License-Identifier: MIT
"""Checks of the machine read the kernel's files, of machines made in a temporary folder."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dnnsuite import host
from dnnsuite.doctor import _machine
from dnnsuite.doctor._finding import Finding

CPU = "sys/devices/system/cpu"
CGROUP = "sys/fs/cgroup"


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")
    return root


@pytest.mark.parametrize(
    ("files", "status", "words"),
    [
        ({}, "missing", "no cpufreq"),
        ({f"{CPU}/cpu0/cpufreq/scaling_governor": "powersave"}, "warning", "turbo unknown: the clock follows the load"),
        (
            {f"{CPU}/cpu0/cpufreq/scaling_governor": "performance", f"{CPU}/cpufreq/boost": "1"},
            "warning",
            "turbo on: the clock follows the temperature",
        ),
        (
            {f"{CPU}/cpu0/cpufreq/scaling_governor": "performance", f"{CPU}/intel_pstate/no_turbo": "1"},
            "ok",
            "turbo off",
        ),
    ],
)
def test_clocks(tmp_path: Path, files: dict[str, str], status: str, words: str) -> None:
    finding = _machine.clocks(machine(tmp_path, files))
    assert finding.status == status
    assert words in finding.detail


def version_2(cpu_max: str) -> dict[str, str]:
    return {"proc/self/cgroup": "0::/job", f"{CGROUP}/cgroup.controllers": "cpu", f"{CGROUP}/job/cpu.max": cpu_max}


def version_1(quota_us: str) -> dict[str, str]:
    job = f"{CGROUP}/cpu/job"
    return {
        "proc/self/cgroup": "3:cpu:/job\n0::/",
        f"{job}/cpu.cfs_quota_us": quota_us,
        f"{job}/cpu.cfs_period_us": "100000",
    }


@pytest.mark.parametrize(
    ("files", "status", "words"),
    [
        ({}, "ok", "none"),
        (version_2("max 100000"), "ok", "none"),
        (version_2("150000 100000"), "warning", "1.5 CPUs"),
        (version_2("800000 100000"), "ok", "8 CPUs"),
        (version_1("50000"), "warning", "0.5 CPUs"),
        (version_1("-1"), "ok", "none"),
    ],
    ids=["nothing", "v2 none", "v2 small", "v2 large", "v1 small", "v1 none"],
)
def test_cpu_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], status: str, words: str
) -> None:
    monkeypatch.setattr(host, "num_cpus", lambda: 4)
    finding = _machine.cpu_quota(machine(tmp_path, files))
    assert finding.status == status
    assert words in finding.detail


@pytest.mark.parametrize(
    ("runnable", "stat", "status", "words"),
    [
        (0.1, "cpu 100 0 0 900 0 0 0 0 0 0", "ok", "0.0% of CPU time stolen"),
        (3.0, "cpu 100 0 0 900 0 0 0 0 0 0", "warning", "contended"),
        (0.1, "cpu 100 0 0 800 0 0 0 100 0 0", "warning", "10.0% of CPU time stolen by other machines"),
        (0.1, "", "ok", "0.10 runnable"),
    ],
)
def test_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runnable: float, stat: str, status: str, words: str
) -> None:
    monkeypatch.setattr(host, "num_cpus", lambda: 4)
    monkeypatch.setattr(os, "getloadavg", lambda: (runnable, 0.0, 0.0))
    finding = _machine.load(machine(tmp_path, {"proc/stat": stat} if stat else {}))
    assert finding.status == status
    assert words in finding.detail


@pytest.mark.parametrize(("available_kib", "status"), [(16 << 20, "ok"), (1 << 20, "warning")])
def test_memory(tmp_path: Path, available_kib: int, status: str) -> None:
    meminfo = f"MemTotal:       {32 << 20} kB\nMemAvailable:   {available_kib} kB\nSwapTotal:      {1 << 20} kB"
    finding = _machine.memory(machine(tmp_path, {"proc/meminfo": meminfo}))
    assert finding.status == status
    assert f"{available_kib / (1 << 20):.1f} of 32.0 GiB available, swap 1.0 GiB" in finding.detail


@pytest.mark.parametrize(
    ("setting", "status"), [("always [madvise] never", "ok"), ("always madvise [never]", "warning"), (None, "missing")]
)
def test_huge_pages(tmp_path: Path, setting: str | None, status: str) -> None:
    files = {"sys/kernel/mm/transparent_hugepage/enabled": setting} if setting else {}
    assert _machine.huge_pages(machine(tmp_path, files)).status == status


@pytest.mark.parametrize(
    ("paranoid", "pmu", "user", "status"),
    [
        (None, True, 0, "missing"),
        ("2", False, 0, "missing"),
        ("2", True, 1, "ok"),
        ("4", True, 1, "missing"),
        ("4", True, 0, "ok"),
    ],
)
def test_hardware_counters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paranoid: str | None, pmu: bool, user: int, status: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    files = {"proc/sys/kernel/perf_event_paranoid": paranoid} if paranoid else {}
    root = machine(tmp_path, files | ({"sys/bus/event_source/devices/cpu/type": "4"} if pmu else {}))
    assert _machine.hardware_counters(root).status == status


V1_CPUSET, V1_MEMORY = ({f"{CGROUP}/{name}/cgroup.procs": "1"} for name in ("cpuset", "memory"))
V2_ROOT = {"proc/self/cgroup": "0::/"}


@pytest.mark.parametrize(
    ("files", "status", "words"),
    [
        ({}, "missing", "no control groups"),
        (V2_ROOT | {f"{CGROUP}/cgroup.controllers": "cpu"}, "missing", "without cpuset, memory"),
        (V2_ROOT | {f"{CGROUP}/cgroup.controllers": "cpuset memory"}, "ok", "delegated, with cpuset, memory"),
        (V1_CPUSET | V1_MEMORY, "ok", "version 1: cpuset and memory, writable"),
        (V1_CPUSET | {f"{CGROUP}/unified/x": ""}, "missing", "version 1 and 2, not writable or without"),
    ],
    ids=["none", "v2 undelegated", "v2", "v1", "v1 half"],
)
def test_control_groups(tmp_path: Path, files: dict[str, str], status: str, words: str) -> None:
    finding = _machine.control_groups(machine(tmp_path, files))
    assert finding.status == status
    assert words in finding.detail


def test_affinity_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(host, "num_cpus", lambda: 3)
    finding = _machine.cpus()
    assert finding.status == "warning"
    assert "3 of 64 CPUs" in finding.detail


@pytest.mark.parametrize(
    "look",
    [
        _machine.cpus,
        _machine.cpu_quota,
        _machine.clocks,
        _machine.load,
        _machine.memory,
        _machine.huge_pages,
        _machine.hardware_counters,
        _machine.control_groups,
    ],
)
def test_a_machine_without_anything(tmp_path: Path, look: Callable[[Path], Finding]) -> None:
    finding = look(tmp_path)
    assert finding.status in ("ok", "warning", "missing")
    assert finding.detail
