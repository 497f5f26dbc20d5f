# SPDX-License-Identifier: MIT
from pathlib import Path

import pytest

from dnnsuite.profiler.cpu import SystemReader
from dnnsuite.profiler.cpu._procfs import KeptFile

MEMINFO = "MemTotal:        1000 kB\nMemFree:          100 kB\nMemAvailable:     600 kB\nBuffers: 1 kB\n"


def test_rates_and_memory(tmp_path: Path) -> None:
    (tmp_path / "proc" / "pressure").mkdir(parents=True)
    (tmp_path / "proc" / "stat").write_text("cpu  0 0 0 0 0 0 0 0\n")
    (tmp_path / "proc" / "meminfo").write_text(MEMINFO)
    (tmp_path / "proc" / "pressure" / "io").write_text("some avg10=0.00 total=0\n")
    system = SystemReader(tmp_path)
    assert list(system.rates(10**9)) == []
    (tmp_path / "proc" / "stat").write_text("cpu  50 0 10 100 20 0 0 20\n")
    (tmp_path / "proc" / "pressure" / "io").write_text("some avg10=0.00 total=100000\n")
    found = {reading.name: reading.value for reading in system.rates(2 * 10**9)}
    assert found == pytest.approx({"busy": 40.0, "steal": 10.0, "iowait": 10.0, "pressure_io": 10.0})
    memory = {reading.name: reading.value for reading in system.memory()}
    assert memory == {"memory_used": 400 * 1024, "memory_available": 600 * 1024}
    system.forget()
    assert list(system.rates(3 * 10**9)) == []


def test_a_machine_without_any_of_it(tmp_path: Path) -> None:
    system = SystemReader(tmp_path)
    assert [*system.rates(1), *system.rates(2), *system.memory()] == []


def test_a_kept_file_is_read_anew_and_opened_again(tmp_path: Path) -> None:
    kept = KeptFile(tmp_path / "file", 4)
    assert kept.text() == ""
    (tmp_path / "file").write_text("one")
    assert kept.text() == "one"
    (tmp_path / "file").write_text("three")
    assert kept.text() == "thre"
    kept.close()
    kept.close()
    assert kept.text() == "thre"
