# SPDX-License-Identifier: MIT
"""Trainer of trials in processes of this machine, one trial each at a time: how sweeps are run without arrays."""

from __future__ import annotations

import io
import multiprocessing
import pickle
import signal
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.util import Finalize
from typing import Any

import torch

from ..errors import InvalidArgument
from .array_trainer import Evaluation
from .arrays import Arrays, Outcome
from .groups import Width
from .recipe import Recipe
from .trial import Trial

_FIELDS = ("number", "config", "seed", "group", "trained", "seconds", "inherited", "source")


class Processes:
    """`count` processes, forked at the first epoch; a trial stays in its process until it is parked.

    Raises:
        InvalidArgument: the device is not a CPU, whose state a fork would not survive.
    """

    def __init__(self, recipe: Recipe, evaluation: Evaluation, metric: str, threads: int, count: int) -> None:
        if recipe.device != "cpu":
            raise InvalidArgument(f"mode='concurrent' is for a CPU, the device is {recipe.device!r}: use mode='hfta'")
        self._threads, self._count = max(1, threads // count), count
        self._made = lambda: Arrays(recipe, evaluation, metric, self._threads, Width(1))
        self._workers: list[_Worker | None] = [None] * count
        self._home: dict[int, int] = {}  # process by trial
        self._busy = False

    @property
    def at_once(self) -> int:
        """Trials that train side by side."""
        return self._count

    def chosen(self, ready: Sequence[Trial]) -> list[Trial]:
        """One trial for each process, those first that are in one."""
        found: dict[int, Trial] = {}
        for trial in ready:
            if trial.number in self._home:
                found.setdefault(self._home[trial.number], trial)
        free = [place for place in range(self._count) if place not in found]
        for trial in ready:
            if free and trial.number not in self._home:
                place = free.pop(0)
                self._home[trial.number] = place
                found[place] = trial
        return list(found.values())

    def train(self, trials: Sequence[Trial]) -> list[Outcome]:
        """Train an epoch of each, at the same time."""
        self._busy = True
        for trial in trials:
            self._worker(trial).send("train", trial)
            trial.state = None
        found = [self._answer(trial) for trial in trials]
        self._busy = False
        return found

    def _answer(self, trial: Trial) -> Outcome:
        place = self._home[trial.number]
        try:
            found, trial.trained, trial.seconds = self._worker(trial).receive()
        except EOFError:
            worker, self._workers[place] = self._workers[place], None
            assert worker is not None
            found = RuntimeError(f"its process ended with status {worker.exit_status()}")
        return trial, found

    def _worker(self, trial: Trial) -> _Worker:
        place = self._home[trial.number]
        worker = self._workers[place]
        if worker is None:
            worker = self._workers[place] = _Worker(self._made)
        return worker

    def park(self, trial: Trial) -> Any:
        """Take a trial's state out of its process."""
        if trial.state is None and trial.number in self._home:
            trial.state = trial.kept = self.peek(trial)
        self._home.pop(trial.number, None)
        return trial.state

    def peek(self, trial: Trial) -> Any:
        """Copy a trial's state; None in the middle of an epoch."""
        if self._busy:
            return None
        return self._asked("state", trial) if trial.number in self._home else trial.state

    def weights(self, trial: Trial) -> dict[str, Any]:
        """Copy the model's `state_dict` of a trial."""
        found: dict[str, Any] = self._asked("weights", trial)
        return found

    def _asked(self, what: str, trial: Trial) -> Any:
        worker = self._worker(trial)
        worker.send(what, trial)
        return torch.load(io.BytesIO(worker.receive()), weights_only=True)

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers:
            if worker is not None:
                worker.close()
        self._workers = [None] * self._count
        self._home.clear()


class _Worker:
    """A process that trains, and the pipe to it."""

    def __init__(self, make: Any) -> None:
        context = multiprocessing.get_context("fork")
        self._pipe, theirs = context.Pipe()
        # No daemon, which could have no loader with workers; it is ended at exit all the same.
        self._process = context.Process(target=_serve, args=(theirs, self._pipe, make))
        self._process.start()
        Finalize(self, self._process.terminate, exitpriority=10)
        theirs.close()

    def send(self, what: str, trial: Trial) -> None:
        """Ask for something of a trial; its state goes along if it has left its process."""
        state = None if trial.state is None else _packed(trial.state)
        fields = {name: getattr(trial, name) for name in _FIELDS}
        self._pipe.send_bytes(pickle.dumps((what, fields, state)))

    def receive(self) -> Any:
        """Wait for the answer."""
        return pickle.loads(self._pipe.recv_bytes())

    def exit_status(self) -> int | None:
        """Status of a process that has ended; -n for signal n."""
        self._process.join(5)
        return self._process.exitcode

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.terminate()
        self._process.join(5)


def _packed(state: Any) -> bytes:
    """Tensors as bytes of a file, since a pipe would share their memory."""
    if not isinstance(state, dict):
        return state.read_bytes()
    held = io.BytesIO()
    torch.save(state, held)
    return held.getvalue()


def _serve(pipe: Any, parents: Any, make: Any) -> None:
    """Answer until the pipe ends. Ctrl-C, which a terminal sends to all processes, is the parent's affair."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parents.close()  # or the pipe would not end with the parent
    with suppress(ConnectionError):  # the parent is gone, and nobody waits for an answer
        _answer_all(pipe, make())


def _answer_all(pipe: Any, arrays: Arrays) -> None:
    torch.set_num_threads(arrays.threads)
    trials: dict[int, Trial] = {}
    while True:
        try:
            what, fields, state = pickle.loads(pipe.recv_bytes())
        except EOFError:
            return
        trial = trials.setdefault(fields["number"], Trial(fields["number"], fields["config"], fields["seed"]))
        if what == "train":
            _take(trial, fields, state)
            pipe.send_bytes(_answer(arrays, trial))
        else:
            pipe.send_bytes(pickle.dumps(_packed(arrays.peek(trial) if what == "state" else arrays.weights(trial))))


def _take(trial: Trial, fields: dict[str, Any], state: bytes | None) -> None:
    for name, value in fields.items():
        setattr(trial, name, value)
    if state is not None:
        trial.state = torch.load(io.BytesIO(state), weights_only=True)


def _answer(arrays: Arrays, trial: Trial) -> bytes:
    found: Any = None
    while found is None:  # an array that failed is made again
        found = next((outcome for _, outcome in arrays.train([trial])), None)
    try:
        return pickle.dumps((found, trial.trained, trial.seconds))
    except Exception:
        return pickle.dumps((RuntimeError(f"{type(found).__name__}: {found}"), trial.trained, trial.seconds))
