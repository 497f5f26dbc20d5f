# SPDX-License-Identifier: MIT
"""Samples of a machine whose files the test writes."""

import pytest

from dnnsuite.profiler.cpu import _machine
from dnnsuite.profiler.cpu._machine import DEFINITIONS, MachineReader


@pytest.fixture
def files(tmp_path, monkeypatch):
    clock = iter(range(0, 10**12, 10**9))  # a second passes between two readings
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
    machine = MachineReader(files(proc__stat="cpu  0 0 0 0 0 0 0 0\n"))
    values(machine)
    machine.forget()
    files(proc__stat="cpu  100 0 0 0 0 0 0 0\n")
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


def test_a_machine_without_any_of_it_gives_what_the_process_knows(tmp_path):
    machine = MachineReader(tmp_path)
    assert list(machine.read()) == []
    assert [r.name for r in machine.read()] == ["cpus_used"]


def test_this_machine():
    machine = MachineReader()
    list(machine.read())
    found = {r.name for r in machine.read()}
    assert {"cpus_used", "resident"} <= found <= set(DEFINITIONS)
