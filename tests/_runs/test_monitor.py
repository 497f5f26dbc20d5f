# SPDX-License-Identifier: MIT
import threading
from pathlib import Path

import pytest

from dnnsuite._runs.monitor import MonitorColumn, MonitorLog

BUSY = MonitorColumn("machine", "busy", "%")
POWER = MonitorColumn("gpu1", "power", "W")
SLICE = MonitorColumn("gpu1/mig0", "memory_used", "bytes")
FLOW = MonitorColumn("gpu0", "gpm_pcie_rx", "bytes/s")


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (BUSY, "machine.busy_pct"),
        (POWER, "gpu1.power_w"),
        (SLICE, "gpu1/mig0.memory_used_bytes"),
        (FLOW, "gpu0.gpm_pcie_rx_bytes_per_s"),
        (MonitorColumn("gpu0", "processes", "1"), "gpu0.processes_count"),
        (MonitorColumn("gpu0", "XYZ", ""), "gpu0.XYZ"),
    ],
)
def test_a_column_names_device_quantity_and_unit(column: MonitorColumn, text: str) -> None:
    assert str(column) == text
    assert MonitorColumn.parse(text) == column


def test_a_row_per_sample_and_an_empty_cell_for_what_was_not_read(tmp_path: Path) -> None:
    log = MonitorLog()
    log.add(1_000, [(BUSY, 50.0)])
    log.add(2_000, [(BUSY, 1.0), (POWER, 300.125), (BUSY, 75.0)])
    log.add(3_000, [(POWER, 1.5e-12), (SLICE, 123456789012)])
    log.write(tmp_path)
    assert (tmp_path / "monitor.csv").read_text().splitlines() == [
        "time_ns,gpu1.power_w,gpu1/mig0.memory_used_bytes,machine.busy_pct",
        "1000,,,50",
        "2000,300.125,,75",
        "3000,1.5e-12,123456789012,",
    ]
    assert len(log) == 3
    assert log.text(["gpu1"]).splitlines()[:2] == ["time_ns,machine.busy_pct", "1000,50"]


def test_nothing_observed_is_no_file(tmp_path: Path) -> None:
    MonitorLog().write(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_row_is_whole_whenever_the_file_is_made() -> None:
    log, done = MonitorLog(), threading.Event()

    def add() -> None:
        for t_ns in range(2000):
            log.add(t_ns, [(MonitorColumn("machine", f"m{t_ns // 500}", "%"), t_ns)])
        done.set()

    threading.Thread(target=add).start()
    while not done.is_set():
        lines = log.text().splitlines()
        assert len({line.count(",") for line in lines}) == 1
    assert len(log.text().splitlines()) == 2001
