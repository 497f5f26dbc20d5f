# SPDX-License-Identifier: MIT
"""Trainers of trials: in arrays of this process, one array per group, the last few kept; or in processes of this
machine, one trial each at a time, which is how sweeps are run without arrays.
"""

from __future__ import annotations

import gc
import io
import logging
import multiprocessing
import pickle
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import torch

from .._fuse.coverage import Coverage
from .._runs.failures import classify
from ..errors import InvalidArgument
from .array_trainer import Evaluation, Found, TrialArray
from .recipe import Recipe
from .slots import load_state
from .trial import Group, Trial, Width

Outcome = tuple[Trial, Found]
_MOST_ARRAYS = 4


class Arrays:
    """Trainer of a group's trials side by side; one that fails is found by training each alone."""

    def __init__(
        self,
        recipe: Recipe,
        evaluation: Evaluation,
        metric: str,
        threads: int,
        width: Width,
        kind: type[TrialArray] | None = None,
    ) -> None:
        self._recipe, self._evaluation, self._metric, self.threads = recipe, evaluation, metric, threads
        self._kind = kind or TrialArray
        self.width = width
        self.say: Callable[[str], None] = logging.getLogger("dnnsuite").warning
        self.covers: dict[Any, Coverage] = {}  # by group, as it was before it was parted
        self._held: dict[Any, TrialArray] = {}

    @property
    def at_once(self) -> int:
        """Trials that train side by side now."""
        return self.width.now

    def chosen(self, ready: Sequence[Trial]) -> list[Trial]:
        """Return the trials to train next: of one group, those in its array first, then those that have trained
        least."""
        groups: dict[Any, list[Trial]] = {}
        for trial in ready:
            if self._recipe.groups.outdated(trial.group):
                self._recipe.admit(trial)
            groups.setdefault(trial.group, []).append(trial)
        last = next(reversed(self._held), None) if self._held else None
        group = (
            groups[last]
            if last in groups
            else max(groups.values(), key=lambda trials: (len(trials), -trials[0].number))
        )
        alone = [trial for trial in group if trial.alone > trial.trained]
        if len(alone) == len(group):
            return alone[:1]
        held = self._held.get(group[0].group)
        resident = {id(trial) for trial in held.trials} if held else set()
        together = [trial for trial in group if trial.alone <= trial.trained]
        order = sorted(together, key=lambda trial: (id(trial) not in resident, trial.trained, trial.number))
        self.width.begin(order[0].trained_bytes, lambda: self._recipe.fitting(order))
        return order[: self.width.now]

    def train(self, trials: Sequence[Trial]) -> list[Outcome]:
        """Train an epoch of each; those without an outcome have to be trained again."""
        began, group = time.perf_counter(), trials[0].group
        try:
            array = self._array(group)
            self._park_others(array, trials)
            array.hold(trials)
            found = dict(zip(map(id, array.trials), array.epoch(), strict=True))
            self._cover(group, array)
            if len(trials) > 1 and (array.runs_apart or array.drew):
                return self._parted(group, array.drew)
        except Exception as error:
            return self._lost(group, trials, error)
        self.width.measured(len(trials), time.perf_counter() - began, array.steps)
        return [(trial, told) for trial in trials if (told := found[id(trial)]) is not None]

    def _cover(self, group: Group, array: TrialArray) -> None:
        """Keep how the parts of a group's models run, and say once what runs model by model."""
        if group.finer is not None and group._replace(finer=None) in self.covers:
            return
        before = self.covers.get(group, ())
        found = self.covers[group] = array.coverage()
        apart = [cover for cover in found if cover.how == "per model"]
        if apart and len(array.trials) > 1 and all(cover.how != "per model" for cover in before):
            first, more = apart[0], f" and {len(apart) - 1} more parts" if len(apart) > 1 else ""
            self.say(
                f"{len(array.trials)} trials run {first.name or first.layer}{more} model by model: {first.reason}; "
                "sweep.coverage() lists all parts"
            )

    def _array(self, group: Any) -> TrialArray:
        """Return the array of a group, which becomes the last used; the first used of too many ends."""
        array = self._held.pop(group, None) or self._kind(self._recipe, self._evaluation, self._metric, self.threads)
        self._held[group] = array
        while len(self._held) > _MOST_ARRAYS:
            first = next(iter(self._held))
            self._park_others(self._held[first], ())
            self._held.pop(first).close()
        return array

    def _park_others(self, array: TrialArray, staying: Sequence[Trial]) -> None:
        """Keep the states of trials that leave the array and will continue later."""
        for trial in array.trials:
            if not trial.over and trial.state is None and not any(trial is one for one in staying):
                self.park(trial)

    def park(self, trial: Trial) -> Any:
        """Take a trial's state out of its array, to continue from later."""
        array = self._held.get(trial.group)
        if trial.state is None and array is not None and any(trial is one for one in array.trials):
            trial.state = trial.kept = array.state(trial)
        return trial.state

    def peek(self, trial: Trial) -> Any:
        """Copy a trial's state; it stays where it is. None in the middle of an epoch."""
        array = self._held.get(trial.group)
        if array is not None and any(trial is one for one in array.trials):
            return None if array.in_epoch else array.state(trial)
        return trial.state

    def weights(self, trial: Trial) -> dict[str, Any]:
        """Copy the model's `state_dict`, of a trial that has just trained."""
        return self._held[trial.group].weights(trial)

    def _parted(self, group: Any, alone: bool) -> list[Outcome]:
        """Part the group of an array whose models ran one by one, or would have to; they train the epoch again."""
        array = self._held.pop(group)
        members = array.trials
        self._abandon(array)
        for trial in members:
            _rewind(trial)
        self._recipe.groups.part(group, alone)
        return []

    def _lost(self, group: Any, trials: Sequence[Trial], error: Exception) -> list[Outcome]:
        """Continue after an array failed: half as wide if memory ran out, else each alone until past this epoch."""
        array = self._held.pop(group, None)
        members = {id(trial): trial for trial in (*(array.trials if array else ()), *trials)}
        if array is not None:
            self._abandon(array)
        kind = classify(error)
        if kind == "oom":
            array = None
            _let_go(error)
        if len(trials) == 1 and (kind != "oom" or self.width.now == 1):
            if kind == "oom":
                self.width.restore()
            return [(trials[0], error)]
        for trial in members.values():
            if not trial.over:
                trial.alone = max(trial.alone, 0 if kind == "oom" else trial.trained + 1)
                _rewind(trial)
        if kind == "oom":
            self.width.halve(len(trials))
        if kind == "oom" and len(trials) > 1:
            logging.getLogger("dnnsuite").warning(
                "memory ran out with %d models at once; the sweep continues with %d", len(trials), self.width.now
            )
        return []

    @staticmethod
    def _abandon(array: TrialArray) -> None:
        try:
            array.close()
        except Exception:  # the error that has been seen, once more
            array.trials = []

    def close(self) -> None:
        """End all arrays."""
        for array in self._held.values():
            self._abandon(array)
        self._held.clear()


def _let_go(error: BaseException) -> None:
    """Free what the calls that an error has passed hold, such as activations: the next try needs the memory."""
    passed: BaseException | None = error
    while passed is not None:
        traceback.clear_frames(passed.__traceback__)
        passed = passed.__context__
    gc.collect()


def _rewind(trial: Trial) -> None:
    """Put a trial back to what was kept of it; it trains again what it has lost."""
    trial.state = load_state(trial.kept) if isinstance(trial.kept, Path) else trial.kept
    trial.trained = 0 if trial.state is None else int(trial.state["epoch"])


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
