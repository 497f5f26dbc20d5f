# SPDX-License-Identifier: MIT
"""A sampler samples, says what it cost, and ends cleanly whatever happens."""

import os
import subprocess
import sys
import threading
import time

import pytest

import forked_program
from dnnsuite.errors import InvalidArgument
from dnnsuite.profiler.sampler import Reading, Sampler, samples_table
from waiting import wait_for


def counting():
    count = 0

    def read():
        nonlocal count
        count += 1
        return [Reading("machine", "count", count, "1")]

    return read


def test_rows_are_in_order_and_the_last_reading_is_at_stop():
    sampler = Sampler("test", counting(), 0.002)
    sampler.start()
    wait_for(lambda: sampler.reads >= 3)
    sampler.stop()
    assert not sampler.running
    assert [row[3] for row in sampler.rows] == list(range(1, sampler.reads + 1))
    assert sampler.rows == sorted(sampler.rows)
    assert sampler.cost_ns > 0
    assert f"test: {sampler.reads} readings every 0.002 s" in sampler.notes()[0]


def test_a_window_shorter_than_the_interval_has_a_beginning_and_an_end():
    sampler = Sampler("test", counting(), 1000.0)
    sampler.start()
    wait_for(lambda: sampler.reads == 1)
    sampler.stop()
    assert sampler.reads == 2


def test_it_goes_on_in_a_second_window_and_stop_may_be_repeated():
    sampler = Sampler("test", counting(), 1000.0)
    for window in (1, 2):
        sampler.start()
        sampler.start()  # while it runs: nothing
        wait_for(lambda window=window: sampler.reads >= 2 * window - 1)
        sampler.stop()
        sampler.stop()
    assert sampler.reads == 4


def test_an_exception_ends_the_thread_and_is_told():
    sampler = Sampler("test", lambda: [1 / 0], 0.001)
    sampler.start()
    wait_for(lambda: not sampler.running)
    sampler.stop()
    assert sampler.notes() == ["test: sampling ended: ZeroDivisionError: division by zero"]


def test_deadlines_that_passed_are_counted():
    calls = iter([0.05, 0.0, 0.0])

    def read():
        time.sleep(next(calls, 0.0))
        return []

    sampler = Sampler("test", read, 0.01)
    sampler.start()
    wait_for(lambda: sampler.reads >= 2)
    sampler.stop()
    assert sampler.missed >= 3
    assert any("were left out" in note for note in sampler.notes())


def test_two_at_once_do_not_disturb_each_other():
    samplers = [Sampler(name, counting(), 0.002) for name in ("a", "b")]
    for sampler in samplers:
        sampler.start()
    wait_for(lambda: all(sampler.reads >= 3 for sampler in samplers))
    samplers[0].stop()
    seen = samplers[1].reads
    wait_for(lambda: samplers[1].reads > seen)
    samplers[1].stop()
    assert not [t for t in threading.enumerate() if t.name in ("dnnsuite-a", "dnnsuite-b")]


def test_a_forked_process_has_no_thread_and_stops_at_once():
    code = """
import os, sys
from dnnsuite.profiler.sampler import Reading, Sampler
sampler = Sampler("test", lambda: [Reading("m", "x", 1.0, "1")], 0.01)
sampler.start()
child = os.fork()
if child == 0:
    assert not sampler.running
    sampler.stop()
    sampler.start()
    sampler.stop()
    os._exit(0 if sampler.rows else 1)
status = os.waitpid(child, 0)[1]
assert sampler.running
sys.exit(os.waitstatus_to_exitcode(status))
"""
    subprocess.run([sys.executable, "-W", "ignore::DeprecationWarning", "-c", code], check=True, timeout=60)


def test_a_program_that_forgets_to_stop_ends():
    code = """
from dnnsuite.profiler.sampler import Sampler
Sampler("test", lambda: [], 0.001).start()
"""
    assert forked_program.run(code).returncode == 0


@pytest.mark.parametrize("interval_s", [0.0, -1.0, float("nan")])
def test_an_interval_that_is_none_is_refused(interval_s):
    with pytest.raises(InvalidArgument, match="must be positive"):
        Sampler("test", list, interval_s)


def test_the_table_has_units_and_definitions():
    table = samples_table("cpu", [(5, "machine", "busy", 1.5, "%")], {"busy": "time not idle"})
    assert list(table.columns) == ["t_ns", "source", "device", "name", "value", "unit"]
    assert table.iloc[0].tolist() == [5, "cpu", "machine", "busy", 1.5, "%"]
    assert table.attrs["definitions"]["busy"] == "time not idle"
    assert set(table.columns) < set(table.attrs["definitions"])
    assert samples_table("cpu", [], {}).empty


def test_a_process_id_is_what_tells_a_fork(monkeypatch):
    sampler = Sampler("test", counting(), 1000.0)
    sampler.start()
    wait_for(lambda: sampler.reads == 1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        assert not sampler.running
    assert sampler.running
    sampler.stop()
