# SPDX-License-Identifier: MIT
"""The state machine that drives instruments: order of calls, what is kept, and that everything is closed."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dnnsuite import profiler
from dnnsuite.errors import InvalidArgument
from dnnsuite.profiler import schedule
from dnnsuite.profiler._windows import STEP_COLUMNS, Phase, Windows


class Recorder:
    """An instrument that writes down what is done to it, and fails where it is told to."""

    def __init__(self, name="recorder", failing=()):
        self.name, self.failing, self.calls = name, failing, []

    def _note(self, call):
        self.calls.append(call)
        if call in self.failing:
            raise RuntimeError(f"{self.name} fails in {call}")

    def open(self):
        self._note("open")

    def start(self):
        self._note("start")

    def step(self, index):
        self._note(f"step {index}")

    def stop(self):
        self._note("stop")

    def tables(self):
        return {}

    def notes(self):
        return []

    def close(self):
        self._note("close")


def run(windows, steps):
    windows.begin()
    for _ in range(steps):
        windows.step()


def test_instruments_follow_the_schedule():
    instrument, closed = Recorder(), []
    windows = Windows(
        [instrument], schedule(skip_first=1, wait=1, warmup=1, active=2, repeat=2), lambda: closed.append(1)
    )
    run(windows, 12)
    window = ["start", "step 0", "step 1", "stop"]
    assert instrument.calls == window * 2
    assert len(closed) == 2
    assert [step.phase for step in windows.steps] == [
        "off", "off", "warmup", "active", "active", "off", "warmup", "active", "active", "off", "off", "off",
    ]  # fmt: skip
    assert [step.window for step in windows.active] == [0, 0, 1, 1]
    windows.close()
    assert instrument.calls[-1] == "close"


def test_windows_may_touch():
    instrument = Recorder()
    windows = Windows([instrument], schedule(active=1, repeat=2))
    run(windows, 3)
    assert instrument.calls == ["start", "step 0", "stop"] * 2
    assert [step.phase for step in windows.steps] == ["active", "active", "off"]


def test_the_device_is_waited_for_at_the_edges_of_a_window_only():
    waited = []
    windows = Windows([], schedule(wait=2, active=3, repeat=1), synchronize=lambda: waited.append(windows.index))
    run(windows, 8)
    assert waited == [1, 4]  # before it opens, before it closes


def test_steps_follow_each_other_and_do_not_hold_the_work_between():
    class Slow(Recorder):
        def start(self):
            from dnnsuite.timing import now_ns

            begin = now_ns()
            while now_ns() - begin < 20_000_000:
                pass

    windows = Windows([Slow()], schedule(wait=1, active=1, repeat=2))
    run(windows, 4)
    table = windows.table()
    assert list(table.attrs["definitions"]) == list(table.columns)
    assert set(table.columns) == set(STEP_COLUMNS)
    assert (table["t1_ns"].to_numpy()[:-1] <= table["t0_ns"].to_numpy()[1:]).all()
    assert table["t0_ns"].iloc[1] - table["t1_ns"].iloc[0] >= 20_000_000


def test_an_instrument_that_fails_to_start_is_stopped_and_all_are_closed():
    first, second = Recorder("first"), Recorder("second", failing={"start"})
    windows = Windows([first, second], schedule(wait=1, active=1))
    windows.begin()
    with pytest.raises(RuntimeError, match="second fails in start"):
        windows.step()
    windows.cut_short("test")
    windows.close()
    assert first.calls == ["start", "stop", "close"]
    assert second.calls == ["start", "stop", "close"]


def test_one_that_fails_to_stop_or_close_does_not_keep_the_others_open():
    bad, good = Recorder("bad", failing={"stop", "close"}), Recorder("good")
    windows = Windows([good, bad], lambda step: Phase.ACTIVE)
    windows.begin()
    with pytest.raises(RuntimeError, match="bad fails in stop"):
        windows.cut_short("test")
    with pytest.raises(RuntimeError, match="bad fails in close"):
        windows.close()
    assert good.calls == ["start", "stop", "close"]
    windows.cut_short("again")  # nothing runs any more
    assert good.calls == ["start", "stop", "close"]


def test_of_an_endless_loop_only_the_last_quiet_steps_are_remembered():
    windows = Windows([], schedule(skip_first=10**9, active=1))
    run(windows, 5000)
    assert len(windows.steps) < 5000
    assert windows.steps[-1].step == 4999


TORCH = {
    torch.profiler.ProfilerAction.NONE: Phase.OFF,
    torch.profiler.ProfilerAction.WARMUP: Phase.WARMUP,
    torch.profiler.ProfilerAction.RECORD: Phase.ACTIVE,
    torch.profiler.ProfilerAction.RECORD_AND_SAVE: Phase.LAST,
}


@given(
    skip_first=st.integers(0, 5),
    wait=st.integers(0, 4),
    warmup=st.integers(1, 3),
    active=st.integers(1, 4),
    repeat=st.integers(0, 3),
)
def test_every_step_has_the_phase_that_torch_gives_it(**arguments):
    ours, theirs = profiler.schedule(**arguments), torch.profiler.schedule(**arguments)
    assert [ours(step) for step in range(60)] == [TORCH[theirs(step)] for step in range(60)]


@given(
    skip_first=st.integers(0, 5),
    wait=st.integers(0, 4),
    warmup=st.integers(0, 3),
    active=st.integers(1, 4),
    repeat=st.integers(1, 3),
)
def test_lengths_are_those_of_the_phases(**arguments):
    made = profiler.schedule(**arguments)
    phases = [made(step) for step in range(made.steps + 20)]
    assert sum(phase.kept for phase in phases) == arguments["active"] * arguments["repeat"]
    assert phases.index(Phase.ACTIVE if arguments["active"] > 1 else Phase.LAST) == made.first_active
    assert phases[made.steps - 1] is Phase.LAST
    assert not any(phase.on for phase in phases[made.steps :])


def test_the_words_of_tbd():
    made = profiler.schedule(start_iteration=1000, profile_iterations=200, warmup=10)
    assert [made(step) for step in (0, 989, 990, 999, 1000, 1198, 1199, 1200)] == [
        Phase.OFF,
        Phase.OFF,
        Phase.WARMUP,
        Phase.WARMUP,
        Phase.ACTIVE,
        Phase.ACTIVE,
        Phase.LAST,
        Phase.OFF,
    ]
    assert profiler.schedule(start_iteration=0, profile_iterations=1, warmup=3)(0) is Phase.LAST
    assert profiler.schedule(profile_iterations=7).steps == 17


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "active=..."),
        ({"active": 0}, "active must be a whole number, 1 or more; got 0"),
        ({"active": 2, "wait": -1}, "wait.*-1"),
        ({"active": True}, "active.*True"),
        ({"active": 1, "repeat": 1.5}, "repeat.*1.5"),
        ({"active": 2, "start_iteration": 3}, "one or the other"),
        ({"start_iteration": -3}, "start_iteration.*-3"),
    ],
)
def test_what_means_nothing_is_refused(arguments, words):
    with pytest.raises(InvalidArgument, match=words):
        profiler.schedule(**arguments)
