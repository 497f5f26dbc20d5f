# SPDX-License-Identifier: MIT
import os
import time

import pytest

from dnnsuite.results import read_monitor
from dnnsuite.training import run
from dnnsuite.training.lines import Watch
from tiny_training import experiment


def times_ns(folder):
    return [int(line.split(",")[0]) for line in (folder / "monitor.csv").read_text().splitlines()[1:]]


def test_a_run_has_its_machine_and_itself_in_monitor_csv_and_a_resumed_one_goes_on(tmp_path):
    out = tmp_path / "run"
    run(experiment(epochs=1), out, quiet=True)
    before = times_ns(out)
    run(experiment(epochs=2), out, resume="auto", quiet=True)
    after = times_ns(out)
    assert after[: len(before)] == before
    assert len(after) > len(before) > 0
    assert after == sorted(after)
    header = (out / "monitor.csv").read_text().splitlines()[0].split(",")
    assert {"workers.resident_bytes", "machine.busy_pct"} <= set(header)
    assert len(read_monitor(out / "monitor.csv")) > 0


def test_rows_of_an_earlier_boot_come_before_by_the_age_of_the_file(tmp_path):
    path = tmp_path / "monitor.csv"
    path.write_text(f"time_ns,machine.busy_pct\n{10**18},1\n{10**18 + 10**9},2\n")
    began_ns, saved_s = time.monotonic_ns(), time.time() - 60
    os.utime(path, (saved_s, saved_s))
    with Watch(tmp_path, gpus=False, go_on=True):
        now_ns = time.monotonic_ns()
    first, second, *_ = times_ns(tmp_path)
    assert second - first == 10**9
    assert 59e9 < now_ns - second < 61e9 + (now_ns - began_ns)


@pytest.mark.parametrize("text", ["time_ns,a.b_pct\n1,2\nx,3\n", "time_ns\n1,2\n9999999999999999999999\n", "a\n\0"])
def test_a_damaged_file_begins_anew(tmp_path, text):
    (tmp_path / "monitor.csv").write_text(text)
    began_ns = time.monotonic_ns()
    with Watch(tmp_path, gpus=False, go_on=True):
        pass
    assert all(t_ns >= began_ns for t_ns in times_ns(tmp_path))


def test_no_file_where_another_process_writes_them(tmp_path):
    with Watch(None, gpus=False, go_on=True) as watch:
        watch.write_now_and_then()
    assert not list(tmp_path.iterdir())
