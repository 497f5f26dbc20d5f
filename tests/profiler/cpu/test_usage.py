# SPDX-License-Identifier: MIT
"""The CPU instrument over a window: counters, samples, and CPU time beside wall time."""

import threading
import time
from types import SimpleNamespace

import pytest
import torch

import forked_program
from dnnsuite import _C
from dnnsuite.errors import Unavailable
from dnnsuite.profiler import Instrument
from dnnsuite.profiler.cpu import CpuInstrument, _usage, observe_steps
from dnnsuite.profiler.cpu._usage import HARDWARE, SOFTWARE, UNITS, ThreadCounters


@pytest.fixture
def instrument():
    found = CpuInstrument(interval_s=0.005)
    found.open()
    yield found
    found.close()


def test_it_is_an_instrument(instrument):
    assert isinstance(instrument, Instrument)


def test_a_step_that_sleeps_has_wall_time_and_no_cpu_time(instrument):
    instrument.start()
    until_s = time.thread_time() + 0.05  # CPU time: on a busy machine it takes longer
    while time.thread_time() < until_s:
        pass
    instrument.step(0)
    time.sleep(0.05)
    instrument.step(1)
    instrument.stop()
    steps = instrument.tables()["steps_cpu"]
    assert steps["step"].tolist() == [0, 1]
    assert steps["t1_ns"][0] == steps["t0_ns"][1]
    assert steps["wall_ns"][1] >= 50_000_000
    used_ns = steps["cpus_used"] * steps["wall_ns"]
    assert used_ns[0] > 45_000_000
    assert used_ns[1] < used_ns[0]
    assert (steps["wall_ns"] == steps["t1_ns"] - steps["t0_ns"]).all()


def test_every_column_and_every_name_is_defined(instrument):
    instrument.start()
    time.sleep(0.03)
    instrument.stop()
    tables = instrument.tables()
    assert set(tables) == {"samples", "counters_cpu", "steps_cpu"}
    for table in tables.values():
        assert set(table.columns) <= set(table.attrs["definitions"])
    samples = tables["samples"]
    assert set(samples["name"]) <= set(samples.attrs["definitions"])
    assert (samples["source"] == "cpu").all()


def test_two_windows_add_up_and_two_instruments_do_not_disturb(instrument):
    other = CpuInstrument(interval_s=0.005)
    other.open()
    for _ in range(2):
        instrument.start()
        other.start()
        _C.spin(1_000_000)
        instrument.step(0)
        instrument.stop()
        other.stop()
    assert len(instrument.tables()["steps_cpu"]) == 2
    assert other.tables()["steps_cpu"].empty
    assert not other.tables()["samples"].empty
    other.close()


def test_a_kernel_that_forbids_counters_leaves_samples_and_a_note(monkeypatch):
    class Refused:
        refused = {"no hardware counter for cycles: this machine shows no PMU": "use software events"}  # noqa: RUF012

        has_pmu = False

        def open(self):
            raise Unavailable("refused")

    monkeypatch.setattr(_usage, "ThreadCounters", Refused)
    instrument = CpuInstrument(interval_s=0.005)
    instrument.open()
    instrument.start()
    instrument.stop()
    assert not instrument.tables()["samples"].empty
    assert instrument.tables()["counters_cpu"].empty
    assert "cpu: no PMU: FLOPs are analytic, not counted" in instrument.notes()
    instrument.close()


def test_stolen_time_is_told(monkeypatch, instrument):
    stolen = iter([0.0, 1e6])
    monkeypatch.setattr(_usage, "STEAL_EVERY_NS", 0)
    monkeypatch.setattr(_usage, "psutil", SimpleNamespace(cpu_times=lambda: SimpleNamespace(steal=next(stolen))))
    instrument.start()
    instrument.step(0)
    instrument.stop()
    assert any("the hypervisor took" in note for note in instrument.notes())


def test_short_steps_do_not_read_the_kernels_file_each(monkeypatch, instrument):
    reads = []
    monkeypatch.setattr(
        _usage, "psutil", SimpleNamespace(cpu_times=lambda: reads.append(1) or SimpleNamespace(steal=1.0))
    )
    monkeypatch.setattr(_usage, "STEAL_EVERY_NS", 10**15)
    instrument.start()
    for i in range(5):
        instrument.step(i)
    instrument.stop()
    assert len(reads) == 1
    assert instrument.tables()["steps_cpu"]["steal_ns"].tolist() == [0] * 5


FORK = """
import os, sys
from dnnsuite import _C
from dnnsuite.profiler.cpu import CpuInstrument, OpsInstrument
instruments = [CpuInstrument(interval_s=0.01), OpsInstrument()]
for each in instruments:
    each.open()
    each.start()
child = os.fork()
if child == 0:
    for each in instruments:
        each.step(0)
        each.stop()
        each.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
before = sum(c.value for c in instruments[0]._threads.read()) if instruments[0]._threads else 0
_C.spin(3_000_000)
after = sum(c.value for c in instruments[0]._threads.read()) if instruments[0]._threads else 1
assert after > before  # the child stopped nothing of its parent's
for each in instruments:
    each.step(0)
    each.stop()
    each.tables()
    each.close()
"""


def test_a_fork_inside_a_window_leaves_the_parents_window_alone():
    done = forked_program.run(FORK)
    assert done.returncode == 0, done.stderr


def test_a_window_left_open_at_exit_is_no_failure():
    code = """
from dnnsuite.profiler.cpu import CpuInstrument, OpsInstrument
import torch
for each in (CpuInstrument(interval_s=0.001), OpsInstrument()):
    each.open()
    each.start()
torch.ones(3).sum()
"""
    done = forked_program.run(code)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr


def test_stop_without_start_and_twice_does_nothing(instrument):
    instrument.stop()
    instrument.start()
    instrument.step(0)
    instrument.stop()
    before = instrument.tables()["counters_cpu"]
    instrument.stop()
    assert instrument.tables()["counters_cpu"].equals(before)


A = torch.randn(16, 16)


def test_each_step_has_its_operators_and_its_time():
    found = observe_steps(lambda: torch.mm(A, A), 3)
    products = found.ops[found.ops["name"] == "aten::mm"]
    assert list(products["step"]) == [0, 1, 2]
    assert set(products["flops"]) == {2 * 16**3}
    assert list(found.steps["step"]) == [0, 1, 2]


def test_after_an_error_steps_can_be_observed_again():
    with pytest.raises(ZeroDivisionError):
        observe_steps(lambda: 1 / 0, 1)
    assert len(observe_steps(lambda: torch.mm(A, A), 1).steps) == 1


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

    monkeypatch.setattr(_usage, "PerfGroup", Group)
    found = ThreadCounters()
    found.open()
    assert found.has_pmu
    assert sorted(found.refused) == [f"no hardware counter for cache_{what}" for what in ("misses", "references")]
    assert opened[-2:] == [["cycles", "instructions"], list(SOFTWARE)]


def test_a_kernel_that_refuses_all_is_unavailable(monkeypatch):
    def refuse(tid, names):
        raise Unavailable("the kernel does not let this user count", "perf_event_open", "sysctl")

    monkeypatch.setattr(_usage, "PerfGroup", refuse)
    with pytest.raises(Unavailable, match="does not let"):
        ThreadCounters().open()


def test_an_unknown_event_names_the_known():
    with pytest.raises(ValueError, match=r"no event 'flops'; there is cycles, .*task_clock"):
        _C.PerfGroup(0, ["flops"])


def test_scaling_is_by_the_share_of_the_time():
    value = _C.PerfValue(raw=10, enabled_ns=100, running_ns=25)
    assert (value.scaled, value.multiplexed) == (40.0, True)
    assert not _C.PerfValue(10, 100, 100).multiplexed
