# SPDX-License-Identifier: MIT
import pytest

from dnnsuite.profiler import window
from dnnsuite.training.stepper import PHASES, Phases


def step(phases):
    for part in (phases.data, phases.zero_grad, phases.compute, phases.update):
        with part:
            pass


def test_only_the_profiled_epoch_is_timed(tmp_path):
    phases = Phases(3)
    for epoch in (1, 2, 3):
        with phases.profiled(epoch, on=epoch == 2):
            for i in range(3):
                with phases.iteration(i):
                    step(phases)
    assert {name: len(all_s) for name, all_s in phases.seconds().items()} == dict.fromkeys(PHASES, 3)
    phases.save(tmp_path)
    header, *rows = (tmp_path / "phases.csv").read_text().splitlines()
    assert header == "phase,iteration,ms"
    assert len(rows) == 12


def test_a_profiled_epoch_that_fails_leaves_no_window_open():
    phases = Phases(1)
    with pytest.raises(RuntimeError), phases.profiled(2, on=True):
        raise RuntimeError("in a step")
    with window.Window():  # one at a time in a process
        step(phases)
    assert not phases.seconds()


def test_without_a_profile_there_is_nothing(tmp_path):
    phases = Phases(0)
    with phases.profiled(1, on=True), phases.iteration(0):
        step(phases)
    phases.save(tmp_path)
    assert not list(tmp_path.iterdir())
