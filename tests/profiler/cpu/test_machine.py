# SPDX-License-Identifier: MIT
"""Samples of a machine whose files the test writes."""

from types import SimpleNamespace

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dnnsuite.profiler.cpu import SystemReader, _machine
from dnnsuite.profiler.cpu._machine import DEFINITIONS, MachineReader


def psutil_process(process):
    """A process whose memory is known, for its own files are where the test writes none."""
    memory, io = process.memory_info(), process.io_counters()
    return SimpleNamespace(memory_info=lambda: memory, io_counters=lambda: io)


@pytest.fixture
def files(tmp_path, monkeypatch):
    clock = iter(range(0, 10**12, 10**9))  # a second passes between two readings
    process = psutil_process(psutil.Process())
    monkeypatch.setattr(psutil, "Process", lambda: process)
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path / "proc"))
    monkeypatch.setattr(_machine, "now_ns", lambda: 10**9 + next(clock))

    def write(**texts):
        for path, text in texts.items():
            file = tmp_path / path.replace("__", "/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return tmp_path

    return write


def values(machine):
    return {(r.device, r.name): r.value for r in machine.read()}


def test_rates_are_between_two_readings(files):
    root = files(
        proc__stat="cpu  0 0 0 0 0 0 0 0 0 0\n",
        proc__pressure__cpu="some avg10=0.00 total=0\n",
        proc__self__schedstat="0 0 0",
    )
    machine = MachineReader(root)
    assert ("machine", "busy") not in values(machine)
    files(
        proc__stat="cpu  50 0 10 100 20 0 0 20 0 0\n",
        proc__pressure__cpu="some avg10=0.00 total=250000\n",
        proc__self__schedstat="500000000 100000000 7",
    )
    found = values(machine)
    assert found["machine", "busy"] == pytest.approx(40.0)  # 80 of 200 ticks
    assert found["machine", "steal"] == pytest.approx(10.0)
    assert found["machine", "iowait"] == pytest.approx(10.0)
    assert found["machine", "pressure_cpu"] == pytest.approx(25.0)
    assert found["process", "main_waiting"] == pytest.approx(10.0)
    assert found["process", "cpus_used"] >= 0
    assert {name for _, name in found} <= set(DEFINITIONS)


def test_time_between_two_windows_is_in_no_rate(files):
    machine = MachineReader(files(proc__stat="cpu  0 0 0 0 0 0 0 0 0 0\n"))
    values(machine)
    machine.forget()
    files(proc__stat="cpu  100 0 0 0 0 0 0 0 0 0\n")
    assert ("machine", "busy") not in values(machine)


def test_an_energy_counter_that_begins_again(files):
    zone = {
        "sys__class__powercap__intel-rapl:0__name": "package-0",
        "sys__class__powercap__intel-rapl:0__max_energy_range_uj": "100000000",
    }
    machine = MachineReader(files(**zone, **{"sys__class__powercap__intel-rapl:0__energy_uj": "90000000"}))
    values(machine)
    files(**{"sys__class__powercap__intel-rapl:0__energy_uj": "15000000"})
    assert values(machine)["package-0", "power"] == pytest.approx(25.0)


def test_a_machine_without_any_of_it_gives_what_psutil_knows(tmp_path):
    machine = MachineReader(tmp_path)
    list(machine.read())
    found = {r.name for r in machine.read()}
    assert {"cpus_used", "resident"} <= found
    assert not {"main_waiting", "clock", "pressure_cpu"} & found


def test_this_machine():
    machine = MachineReader()
    list(machine.read())
    found = {r.name for r in machine.read()}
    assert {"cpus_used", "resident"} <= found <= set(DEFINITIONS)


PRESSURE = """some avg10=1.53 avg60=0.87 avg300=0.20 total=1234567
full avg10=0.00 avg60=0.00 avg300=0.00 total=89
"""
ARM_CPUINFO = "processor\t: 0\nBogoMIPS\t: 50.00\n"
CPUINFO = "processor\t: 0\ncpu MHz\t\t: 2596.134\n\nprocessor\t: 1\ncpu MHz\t\t: 1500.000\n"


def test_pressure():
    assert _machine.pressure(PRESSURE) == {"some": 1234567, "full": 89}
    assert _machine.pressure(PRESSURE.splitlines()[0]) == {"some": 1234567}  # cpu has no full before Linux 5.13
    assert _machine.pressure("some avg10=nan total=") == {}


def test_time_of_the_scheduler():
    assert _machine.sched_ns("120 34 5\n") == (120, 34)
    assert _machine.sched_ns("120 34") is None
    assert _machine.sched_ns("") is None


@given(st.text())
def test_nothing_makes_a_parser_fail(text):
    for parse in (_machine.pressure, _machine.sched_ns):
        for damaged in (text, "some " + text + "total=1", PRESSURE[: len(text)] + text, "1 " + text):
            parse(damaged)


def test_clocks_of_cpufreq_and_else_of_cpuinfo(tmp_path):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(CPUINFO)
    assert _machine.frequencies_hz(tmp_path, [0, 1]) == {0: 2596.134e6, 1: 1500e6}
    assert _machine.frequencies_hz(tmp_path, [1]) == {1: 1500e6}
    folder = tmp_path / "sys/devices/system/cpu/cpu1/cpufreq"
    folder.mkdir(parents=True)
    (folder / "scaling_cur_freq").write_text("3400000\n")
    assert _machine.frequencies_hz(tmp_path, [0, 1]) == {1: 3.4e9}
    (folder / "scaling_cur_freq").write_text("<unknown>\n")
    (tmp_path / "proc/cpuinfo").write_text(ARM_CPUINFO)
    assert _machine.frequencies_hz(tmp_path, [0, 1]) == {}


def test_energy_of_packages_and_their_parts(tmp_path):
    def zone(name, label, energy, top="262143328850"):
        folder = tmp_path / "sys/class/powercap" / name
        folder.mkdir(parents=True)
        for file, text in (("name", label), ("energy_uj", energy), ("max_energy_range_uj", top)):
            (folder / file).write_text(f"{text}\n")

    assert _machine.rapl_j(tmp_path) == {}
    zone("intel-rapl:0", "package-0", "5000000")
    zone("intel-rapl:0:0", "dram", "1500000")
    zone("intel-rapl:1", "package-1", "")  # root alone may read it
    found = _machine.rapl_j(tmp_path)
    assert found == {"package-0": (5.0, 262143.32885), "package-0/dram": (1.5, 262143.32885)}


def test_a_file_that_is_not_there_or_no_text_is_empty(tmp_path):
    assert _machine.read_text(tmp_path / "none") == ""
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    assert _machine.read_text(tmp_path / "binary") == ""
    assert _machine.read_text(tmp_path) == ""


def test_rates_and_memory(files) -> None:
    root = files(proc__stat="cpu  0 0 0 0 0 0 0 0 0 0\n", proc__pressure__io="some avg10=0.00 total=0\n")
    system = SystemReader(root)
    assert list(system.rates(10**9)) == []
    files(proc__stat="cpu  50 0 10 100 20 0 0 20 0 0\n", proc__pressure__io="some avg10=0.00 total=100000\n")
    found = {reading.name: reading.value for reading in system.rates(2 * 10**9)}
    assert found == pytest.approx({"busy": 40.0, "steal": 10.0, "iowait": 10.0, "pressure_io": 10.0})
    system.forget()
    assert list(system.rates(3 * 10**9)) == []


def test_memory_of_this_machine() -> None:
    memory = {reading.name: reading.value for reading in SystemReader().memory()}
    assert memory["memory_used"] + memory["memory_available"] == psutil.virtual_memory().total
