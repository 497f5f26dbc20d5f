# SPDX-License-Identifier: MIT
"""Counters of this process's threads, and what this machine refuses."""

import threading

import pytest

from dnnsuite import _C
from dnnsuite.errors import Unavailable
from dnnsuite.profiler.cpu import _threads
from dnnsuite.profiler.cpu._threads import HARDWARE, SOFTWARE, UNITS, ThreadCounters


@pytest.fixture
def counters():
    found = ThreadCounters()
    try:
        found.open()
    except Unavailable as error:
        pytest.skip(f"{error}")
    yield found
    found.close()


def test_every_thread_is_counted_also_one_that_begins_later(counters):
    ready, go = threading.Barrier(2), threading.Event()

    def work():
        ready.wait()
        go.wait()
        _C.spin(3_000_000)

    early = threading.Thread(target=work)
    early.start()
    ready.wait()
    counters.start()
    late = threading.Thread(target=work)
    late.start()
    ready.wait()
    counters.follow()
    go.set()
    early.join()
    late.join()
    counters.stop()
    clocks = {c.thread: c.value for c in counters.read() if c.counter == "task_clock"}
    assert clocks[early.native_id] > 1e6
    assert clocks[late.native_id] > 1e6


def test_what_runs_outside_the_window_is_not_counted(counters):
    counters.start()
    counters.stop()
    before = sum(c.value for c in counters.read() if c.counter == "task_clock")
    _C.spin(3_000_000)
    assert sum(c.value for c in counters.read() if c.counter == "task_clock") == before


def test_counters_carry_units_and_how_long_they_ran(counters):
    counters.start()
    _C.spin(1000)
    counters.stop()
    for count in counters.read():
        assert count.unit == UNITS[count.counter]
        assert 0 < count.running_pct <= 100
        assert count.value >= 0


def test_hardware_counters_count_or_the_refusal_is_a_sentence(counters):
    counted = {c.counter for c in counters.read()}
    assert set(SOFTWARE) <= counted
    if counted >= set(HARDWARE):
        assert not counters.refused
        return
    ((what, remedy),) = counters.refused.items()
    assert what.startswith(("no hardware counter for cycles: this machine shows no PMU", "the kernel does not let"))
    assert remedy


def test_events_that_a_pmu_has_not_are_left_out_and_the_others_counted(monkeypatch):
    opened = []

    class Group:
        def __init__(self, tid, names):
            for name in names:
                if name in ("cache_references", "cache_misses"):
                    raise Unavailable(f"no hardware counter for {name}", "perf_event_open", "leave it out")
            opened.append(names)

    monkeypatch.setattr(_threads, "PerfGroup", Group)
    found = ThreadCounters()
    found.open()
    assert found.has_pmu
    assert sorted(found.refused) == [f"no hardware counter for cache_{what}" for what in ("misses", "references")]
    assert opened[-2:] == [["cycles", "instructions"], list(SOFTWARE)]


def test_a_kernel_that_refuses_all_is_unavailable(monkeypatch):
    def refuse(tid, names):
        raise Unavailable("the kernel does not let this user count", "perf_event_open", "sysctl")

    monkeypatch.setattr(_threads, "PerfGroup", refuse)
    with pytest.raises(Unavailable, match="does not let"):
        ThreadCounters().open()


def test_an_unknown_event_names_the_known():
    with pytest.raises(ValueError, match=r"no event 'flops'; there is cycles, .*task_clock"):
        _C.PerfGroup(0, ["flops"])


def test_scaling_is_by_the_share_of_the_time():
    value = _C.PerfValue(raw=10, enabled_ns=100, running_ns=25)
    assert (value.scaled, value.multiplexed) == (40.0, True)
    assert not _C.PerfValue(10, 100, 100).multiplexed
