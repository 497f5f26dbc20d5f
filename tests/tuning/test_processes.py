# SPDX-License-Identifier: MIT
"""Processes of a sweep beside each other: Ctrl-C, which a terminal sends to all of them; a parent that is killed."""

import multiprocessing
import os
import signal
import time

import psutil
import pytest
import torch

import dnnsuite
from dnnsuite._runs.interrupts import Interrupted
from small_sweep import run, undisturbed


def alone(errors, out, number, whom):
    """Run a sweep in a session of its own that gets a signal after its second epoch."""
    os.setsid()
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT), 2)
    seen = []

    def hear(event):
        seen.append(event)
        if len(seen) == 2:
            whom(os.getpid(), number)

    try:
        run(out, callbacks=[hear], mode="concurrent", width=2)
    except Interrupted as interrupted:
        os._exit(interrupted.exit_code)


def runs(process):
    """True until a process has ended, whoever has to wait for it."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(("number", "whom"), [(signal.SIGINT, os.killpg), (signal.SIGKILL, os.kill)])
def test_a_signal_to_all_or_to_the_parent_leaves_nobody_behind(tmp_path, number, whom):
    errors, out = tmp_path / "errors", tmp_path / "out"
    fork = multiprocessing.get_context("fork")
    process = fork.Process(target=alone, args=(errors, out, number, whom))
    process.start()
    workers = []
    while process.is_alive():
        try:
            workers = psutil.Process(process.pid).children() or workers
        except psutil.NoSuchProcess:
            break
        time.sleep(0.005)
    process.join()
    assert process.exitcode == (130 if number == signal.SIGINT else -signal.SIGKILL)
    assert workers
    while any(map(runs, workers)):
        time.sleep(0.01)
    said = "dnnsuite: SIGINT: cleaning up; once more to end at once\n" if number == signal.SIGINT else ""
    assert errors.read_text() == said
    assert run(out, resume=True).history.equals(undisturbed().history)


def test_loaders_may_have_workers(task):
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*task.train), 28, num_workers=1)
    histories = [
        dnnsuite.sweep(
            lambda config: torch.nn.Linear(4, 2), {"lr": [0.1, 0.2]}, loader, out=False, quiet=True, **options
        ).history
        for options in ({"mode": "concurrent", "width": 2}, {})
    ]
    assert histories[0].equals(histories[1])
