# SPDX-License-Identifier: MIT
from pathlib import Path

import pytest

from dnnsuite import results
from dnnsuite.errors import Error
from dnnsuite.results.monitor import MonitorRow, monitor_frame, read_monitor, rows_of_monitor
from result_tables import a_record, write_monitored, write_record

SAMPLES = [(0.0, 90.0), (1.0, 10.0), (2.0, 20.0), (3.0, 60.0), (4.0, 90.0)]


def busy(path: Path) -> MonitorRow:
    (found,) = [row for row in rows_of_monitor(path) if row.metric == "busy"]
    return found


@pytest.mark.parametrize(
    ("window", "mean", "peak", "samples"),
    [
        ((1, 3), (20 + 60) / 2, 60.0, 2),  # a sample speaks of the time since the one before
        ((0, 4), (10 + 20 + 60 + 90) / 4, 90.0, 4),
        (None, (10 + 20 + 60 + 90) / 4, 90.0, 4),
        ((3, 9), 90.0, 90.0, 1),
    ],
)
def test_cut_to_the_rated_window(
    tmp_path: Path, window: tuple[int, int] | None, mean: float, peak: float, samples: int
) -> None:
    row = busy(write_monitored(tmp_path, "one", SAMPLES, window))
    assert (row.mean, row.peak, row.samples) == (pytest.approx(mean), peak, samples)
    assert (row.job, row.mode, row.of, row.unit) == ("toy", "serial", "machine", "%")


def test_a_window_shorter_than_the_interval_has_the_sample_that_reaches_into_it(tmp_path: Path) -> None:
    path = write_monitored(tmp_path, "one", [(0.0, 1.0), (5.0, 40.0), (9.0, 3.0)], (1, 2))
    assert (busy(path).mean, busy(path).total) == (40.0, 40.0)


def test_a_suites_window_is_that_of_its_kept_observations(tmp_path: Path) -> None:
    path = write_monitored(tmp_path, "one", SAMPLES)
    rows = ["0,0,0,2000000000,1,warmup,", "1,0,2000000000,3000000000,1,train,"]
    (path / "samples.csv").write_text("\n".join(["i,epoch,t_start_ns,t_stop_ns,items,phase,flag", *rows, ""]))
    assert busy(path).mean == 60.0


def test_counters_grow_and_reasons_are_left_out(tmp_path: Path) -> None:
    path = write_record(tmp_path, a_record("one", window={"start_ns": 5 * 10**8, "stop_ns": 25 * 10**8}))
    lines = ["0,100,4,0,", "1000000000,,4,100,7", "2000000000,300,4,0,7", "3000000000,400,4,0,"]
    header = "time_ns,gpu0.energy_j,gpu0.clock_reasons_bits,gpu0.throttled_pct,gpu0.processes_count"
    (path / "monitor.csv").write_text("\n".join([header, *lines, ""]))
    found = {row.metric: row for row in rows_of_monitor(path)}
    assert set(found) == {"energy", "throttled", "processes"}
    assert found["energy"].total == pytest.approx(350 - 150)
    assert found["throttled"].mean == 25.0  # of the two seconds, half a one
    assert found["processes"].mean == 7.0
    assert monitor_frame([found["energy"]]).loc[0, "metric"] == "energy"


def test_a_run_that_took_turns_is_seen_in_its_turns_alone(tmp_path: Path) -> None:
    spans = [[0, 10**9], [2 * 10**9, 3 * 10**9]]
    path = write_record(tmp_path, a_record("one", window={"start_ns": 0, "stop_ns": 3 * 10**9, "spans_ns": spans}))
    lines = ["0,0,0", "1000000000,10,5", "2000000000,90,100", "3000000000,20,107"]
    (path / "monitor.csv").write_text("\n".join(["time_ns,machine.busy_pct,gpu0.energy_j", *lines, ""]))
    found = {row.metric: row for row in rows_of_monitor(path)}
    assert (found["busy"].mean, found["busy"].peak) == (15.0, 20.0)
    assert found["energy"].total == pytest.approx(5 + 7)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("t,machine.busy_pct\n1,2\n", "no column 'time_ns'"),
        ("time_ns,machine.busy_pct\n1,x\n", "could not convert"),
        ("", "No columns"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = write_monitored(tmp_path, "one", SAMPLES)
    (path / "monitor.csv").write_text(text)
    with pytest.raises(Error, match=said):
        read_monitor(path / "monitor.csv")
    with pytest.raises(Error, match=r"monitor\.csv"):
        results.read_monitor(path / "monitor.csv")


def test_no_sample_is_no_row(tmp_path: Path) -> None:
    assert rows_of_monitor(write_monitored(tmp_path, "one", [])) == []
