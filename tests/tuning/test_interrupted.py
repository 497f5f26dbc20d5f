# SPDX-License-Identifier: MIT
"""Signals and kills in the middle of a sweep: the epochs that were trained are kept, by every algorithm."""

import functools
import multiprocessing
import os
import signal

import pytest

from dnnsuite._runs.interrupts import Interrupted
from dnnsuite.tuning import devices
from dnnsuite.tuning.engine import Engine
from dying_writes import in_child
from small_sweep import ALGORITHMS, run, undisturbed

OPTIONS = {"epochs": 6, "width": 2}


class Count:
    """A callback that counts epochs, and sends this process a signal at one."""

    def __init__(self, at=0, number=signal.SIGINT):
        self.epochs, self.at, self.number = [], at, number

    def __call__(self, event):
        if event.kind == "epoch":
            self.epochs.append((event.trial, event.epoch))
            if len(self.epochs) == self.at:
                os.kill(os.getpid(), self.number)


@pytest.mark.parametrize(("name", "at"), list(zip(ALGORITHMS, (5, 8, 6, 7), strict=True)))
def test_no_epoch_is_trained_again_after_a_signal(tmp_path, name, at):
    whole = run(False, name, **OPTIONS)
    first, second = Count(at), Count()
    with pytest.raises(KeyboardInterrupt, match=r"SIGINT: .*out='.*', resume=True"):
        run(tmp_path / "out", name, [first], **OPTIONS)
    sweep = run(tmp_path / "out", name, [second], resume=True, **OPTIONS)
    assert sweep.history.equals(whole.history)
    assert sweep.table.drop(columns="seconds").equals(whole.table.drop(columns="seconds"))
    assert not set(first.epochs) & set(second.epochs)
    assert len(first.epochs) + len(second.epochs) == whole.epochs


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_signals_keep_the_same_and_are_no_keyboard_interrupt(tmp_path, number):
    first, second = Count(4, number), Count()
    with pytest.raises(Interrupted, match=signal.Signals(number).name) as raised:
        run(tmp_path / "out", "random", [first])
    assert not isinstance(raised.value, KeyboardInterrupt)
    run(tmp_path / "out", "random", [second], resume=True)
    assert len(first.epochs) + len(second.epochs) == undisturbed("random").epochs


def test_a_sweep_without_a_directory_says_that_nothing_is_kept():
    with pytest.raises(KeyboardInterrupt, match="out=False"):
        run(False, "random", [Count(4)])


def test_what_a_kill_leaves_is_at_most_as_old_as_the_last_save(tmp_path, monkeypatch):
    monkeypatch.setattr(devices, "Engine", functools.partial(Engine, save_every_s=0.0))

    def dies(event):
        if event.kind == "epoch" and event.epoch == 5:
            os._exit(9)

    child = multiprocessing.get_context("fork").Process(
        target=run, args=(tmp_path / "out", "random", [dies]), kwargs=OPTIONS
    )
    child.start()
    child.join(120)
    assert child.exitcode == 9
    rest = Count()
    run(tmp_path / "out", "random", [rest], resume=True, **OPTIONS)
    whole = run(False, "random", **OPTIONS)
    assert len(rest.epochs) <= whole.epochs - 2 * 4


def test_a_kill_at_any_write_of_a_sweep_that_saves_all_the_time(tmp_path, monkeypatch):
    name = "pbt"
    monkeypatch.setattr(devices, "Engine", functools.partial(Engine, save_every_s=0.0))
    whole = run(False, name, **OPTIONS)
    writes = in_child(lambda: run(tmp_path / "counted", name, **OPTIONS))
    for number in range(2, writes + 1, max(1, writes // 2)):
        out = tmp_path / str(number)
        assert in_child(lambda out=out: run(out, name, **OPTIONS), number) is None
        sweep = run(out, name, resume=(out / "sweep.json").is_file(), **OPTIONS)
        assert sweep.history.equals(whole.history), number
        assert not list(out.rglob("state-*.pt"))


def test_processes_of_a_concurrent_sweep_keep_their_epochs_too(tmp_path):
    options = {"mode": "concurrent", **OPTIONS}
    first, second = Count(5), Count()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "out", "random", [first], **options)
    sweep = run(tmp_path / "out", "random", [second], resume=True, **options)
    assert sweep.history.equals(run(False, "random", **OPTIONS).history)
    assert len(first.epochs) + len(second.epochs) == sweep.epochs


def test_a_callback_that_raises_loses_nothing_either(tmp_path):
    seen = []

    def raising(event):
        if event.kind == "epoch":
            seen.append(event)
            if len(seen) == 7:
                raise ZeroDivisionError

    rest = Count()
    with pytest.raises(ZeroDivisionError):
        run(tmp_path / "out", "hyperband", [raising])
    sweep = run(tmp_path / "out", "hyperband", [rest], resume=True)
    assert sweep.history.equals(undisturbed("hyperband").history)
    assert not {(event.trial, event.epoch) for event in seen} & set(rest.epochs)
