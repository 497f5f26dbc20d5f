# SPDX-License-Identifier: MIT
"""The loop of a sweep: orders of the algorithm, epochs of the trainer, decisions, records."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._runs.interrupts import check, deferred
from ..errors import Error, InvalidArgument
from .algorithms import Algorithm, Decision, Order
from .arrays import Arrays, Outcome, Processes
from .callbacks import Event, reason_of
from .goal import Best, Goal, metric_in
from .slots import load_state
from .store import Kept, Store
from .trial import Trial

if TYPE_CHECKING:
    from .devices import OnDevices

_WAITED_FOR_S = 10.0  # a signal waits for the end of an epoch that is this short, so that none of it is lost


class NothingTrained(Error):
    """Raised when every trial of a sweep failed."""


@dataclass
class Engine:
    """Engine that runs a sweep to its end.

    Attributes:
        admit: called with each trial before it begins; it finds its group, and its errors are the trial's.
        check_configs: called with the configurations of the first trials before they train.
        epochs_of: epochs of a trial's own, after which it is done; None leaves that to the algorithm.
        look_ahead: trials that may wait, so that groups fill their arrays.
        keep: number of the best trials whose weights are kept.
        resumed: an earlier process has left trials.
        save_every_s: seconds between two writings of trials that are under way.
        may_lose_s: seconds of training that a kill may lose: to write each rung of milliseconds takes longer than it.
    """

    algorithm: Algorithm
    trainer: Arrays | Processes | OnDevices
    goal: Goal
    admit: Callable[[Trial], None]
    store: Store | None = None
    check_configs: Callable[[list[dict[str, Any]]], None] = lambda configs: None
    tell: Callable[[Event, Engine], None] = lambda event, engine: None
    seed: int = 0
    epochs_of: Callable[[Trial], int | None] = lambda trial: None
    look_ahead: int = 64
    save_every_s: float = 60.0
    may_lose_s: float = 1.0
    trials: dict[int, Trial] = field(default_factory=dict)
    trajectory: list[tuple[float, float]] = field(default_factory=list)
    best: Best = field(default_factory=Best)
    metric: str = ""
    keep: int = 1
    resumed: bool = False

    def run(self) -> None:
        """Train until the algorithm orders nothing more.

        Raises:
            InvalidArgument: the metric is missing.
        """
        self._kept: dict[int, Kept] = self.store.kept() if self.store else {}
        self.resumed = bool(self._kept)
        self._load_best()
        self._written = {n: (kept.status, len(kept.history)) for n, kept in self._kept.items()}  # records on disk
        self._active: dict[int, Trial] = {}
        self._heard: dict[int, tuple[Trial, Any]] = {}  # outcomes that wait until all have one
        self._unwritten: dict[int, Trial] = {}  # trials of which a rung or the end is not on disk yet
        self._generation: dict[int, tuple[Trial, Any]] = {}  # trials and states at the end of one that waits
        self._began_s = self._saved_s = self._wrote_s = time.monotonic()
        self.metric = self.goal.metric or ""
        self.train_s, self._epoch_s = 0.0, math.inf
        try:
            going = True
            while going:
                check()
                with deferred() if self._epoch_s < _WAITED_FOR_S else nullcontext():
                    going = self._go_on()
            self._write(lose_nothing=True)
        except BaseException:
            with suppress(Exception):  # what ended the sweep is told, not that the disk is full, too
                self._save_under_way()
            raise
        self._save_best()

    def _go_on(self) -> bool:
        """Train an epoch of some of the trials; False if the algorithm orders nothing more."""
        self._take_orders()
        self._write()
        ready = [trial for trial in self._active.values() if trial.number not in self._heard]
        if not ready:
            more = bool(self._heard)
            self._deliver()
            return more
        self._train(ready)
        if self.algorithm.parallel is None:
            self._deliver()
        if time.monotonic() - self._saved_s >= self.save_every_s:
            self._save_under_way()
        return True

    # -- orders ----------------------------------------------------------------------------------------------------

    def _take_orders(self) -> None:
        limit = self.algorithm.parallel or self.look_ahead
        if self._heard and self.algorithm.parallel is not None:
            return  # the round is not over
        while len(self._active) < limit or self.algorithm.keeps_states:
            order = self.algorithm.next()
            self._end_given_up()
            if order is None:
                return
            self._begin(order)

    def _begin(self, order: Order) -> None:
        trial = self.trials.get(order.trial)
        if self.algorithm.keeps_states and order.trial in self._unwritten:
            self._write(lose_nothing=True)  # its generation has not ended: others may ask for the rung that it leaves
        if trial is None:
            trial = self._new(order)
            if trial is None:
                return
        elif order.source is not None and not self._inherit(trial, self.trials[order.source], order):
            return
        if trial.epoch and trial.epoch == self.epochs_of(trial):  # it is through, and its rung would go on
            self.algorithm.ended(trial.number, self._value(trial.history[-1]))
            self._end(trial, "done")
            return
        trial.status = "running"
        self._active[trial.number] = trial
        self._unwritten.pop(trial.number, None)  # of a rung that it leaves

    def _new(self, order: Order) -> Trial | None:
        config = dict(order.config or {})
        seed = config.get("seed", self.seed + order.trial)
        trial = self.trials[order.trial] = Trial(order.trial, config, seed)
        kept = self._kept.get(order.trial)
        if kept is not None:
            self._check_same(kept, trial)
            trial.known, trial.seconds = kept.history, kept.seconds
            trial.audits_passed, trial.changed = kept.audits_passed, dict(kept.changed)
            if kept.status == "failed" and not kept.history:
                self._fail(trial, kept.failure, kept.message)
                return None
        return trial if self._admitted(trial) else None

    def _check_same(self, kept: Kept, trial: Trial) -> None:
        """Refuse values that were trained with another configuration, as of a study that was kept in memory alone."""
        if not kept.is_of(trial.config):
            raise InvalidArgument(
                f"trial {trial.number} was {kept.config} before the sweep was interrupted, and is {trial.config} now: "
                "a search that draws new values cannot continue; give the study a storage and a name, or change out"
            )

    def _admitted(self, trial: Trial) -> bool:
        """True if a trial can begin; one whose model cannot be made has failed."""
        try:
            self.admit(trial)
        except InvalidArgument as error:
            if len(self.trials) == 1 and "make_model" in str(error):
                raise
            self._fail(trial, "crash", str(error))
            return False
        except Exception as error:
            self._fail(trial, *reason_of(error))
            return False
        return True

    def _inherit(self, trial: Trial, source: Trial, order: Order) -> bool:
        """Let a trial continue from another's state, with values of its own; False if its model cannot be made."""
        state = self._state_at(source, trial.epoch)
        if state is None and trial.epoch >= len(trial.known):
            kept = self._kept.get(trial.number)
            if kept is not None and kept.status == "failed":  # then, as its new model could not be made
                trial.take_over(source, order.config)
                self._fail(trial, kept.failure, kept.message)
                return False
            raise Error(
                f"the state of trial {source.number} after epoch {trial.epoch}, with which trial {trial.number} "
                "continues, is missing; sweep again with another out"
            )
        trial.take_over(source, order.config)
        trial.state = trial.kept = state
        trial.trained = source.epoch if state is None else trial.epoch
        return self._admitted(trial)

    def _state_at(self, trial: Trial, epoch: int) -> Any:
        """State of a paused trial; None while it is not known, and need not be, since its epochs are."""
        if trial.state is not None:
            return load_state(trial.state) if isinstance(trial.state, Path) else trial.state
        path = self._kept[trial.number].states.get(epoch) if trial.number in self._kept else None
        return None if path is None else load_state(path)

    # -- epochs ----------------------------------------------------------------------------------------------------

    def _train(self, ready: Sequence[Trial]) -> None:
        """Report values that are known already, else train an epoch of some of the trials."""
        if self._hear_known(ready):
            return
        for trial in ready:
            self._find_state(trial)
        self._train_these(self.trainer.chosen(ready))

    def _hear_known(self, ready: Sequence[Trial]) -> bool:
        """Report the next epoch of each trial whose value is known; False if there is none."""
        known = [trial for trial in ready if trial.epoch < len(trial.known)]
        for trial in known:
            trial.trained, trial.state, trial.kept = trial.epoch + 1, None, None
            self._heard[trial.number] = (trial, trial.known[trial.epoch])
        return bool(known)

    def _train_these(self, trials: Sequence[Trial]) -> list[Outcome]:
        """Train an epoch of each and hear of it; return what is new."""
        if not self.train_s:
            self.check_configs([trial.config for trial in self.trials.values()])
        began = time.monotonic()
        outcomes = self.trainer.train(trials)
        self._epoch_s = time.monotonic() - began
        self.train_s += self._epoch_s
        outcomes = [(trial, found) for trial, found in outcomes if self._is_new(trial, found)]
        for trial, found in outcomes:
            self._heard[trial.number] = (trial, found)
        self._look_for_best(outcomes)
        return outcomes

    def _is_new(self, trial: Trial, found: Any) -> bool:
        return isinstance(found, BaseException) or trial.trained > trial.epoch

    def _find_state(self, trial: Trial) -> None:
        """Give a trial whose epochs are known the state after them; without one it trains them again."""
        kept = self._kept.pop(trial.number, None) if trial.epoch == len(trial.known) else None
        if kept is None or trial.state is not None:
            return
        path = kept.states.get(trial.epoch)
        trial.state = trial.kept = path
        trial.trained = trial.epoch if path is not None else 0

    def _look_for_best(self, outcomes: Sequence[Outcome]) -> None:
        found = [(self._value(metrics), trial.number, trial.trained, trial)
                 for trial, metrics in outcomes if isinstance(metrics, dict) and not _is_nan(metrics)]  # fmt: skip
        for value, number, epoch, trial in sorted((one for one in found if math.isfinite(one[0])), key=lambda x: x[:3]):
            if self.best.wants((value, number, epoch), self.keep):
                self.best.take((value, number, epoch), self.trainer.weights(trial), self.keep)

    def _value(self, metrics: dict[str, float]) -> float:
        """Return the metric, lower is better.

        Raises:
            InvalidArgument: there is none of its name.
        """
        self.metric = metric_in(metrics, self.metric)
        if self.metric == "value" and self.goal.metric is None and not self.goal.given:
            raise InvalidArgument(
                "evaluate returned a number, and nothing says which direction is better: give goal='min' or 'max'"
            )
        return self.goal.sign * metrics[self.metric]

    # -- decisions -------------------------------------------------------------------------------------------------

    def _deliver(self) -> None:
        """Tell the algorithm what was heard, in the order of the trials, and do as it decides."""
        try:
            for number in sorted(self._heard):
                trial, found = self._heard.pop(number)
                if isinstance(found, BaseException):
                    self._hear_of_failure(trial, found)
                else:
                    self._hear(trial, found)
        finally:
            self._write()

    def _hear_of_failure(self, trial: Trial, error: BaseException) -> None:
        self._fail(trial, *reason_of(error))

    def _hear(self, trial: Trial, metrics: dict[str, float]) -> None:
        value = self._value(metrics)
        trial.history.append(dict(metrics))
        if not math.isfinite(value):
            self._fail(trial, "nan", f"{self.metric} is {metrics[self.metric]} after epoch {trial.epoch}")
            return
        if _is_nan(metrics):
            self._fail(trial, "nan", f"the training loss is NaN in epoch {trial.epoch}")
            return
        self._note_value(trial, value)
        new = trial.epoch > len(trial.known)
        decision = self.algorithm.report(trial.number, trial.epoch, value)
        if self._is_news(trial):
            self._say("epoch", trial)
        through = trial.epoch == self.epochs_of(trial)
        if decision is Decision.GO and (through or self._impatient(trial)):
            self.algorithm.ended(trial.number, value)
            self._end(trial, "done" if through else "stopped")
        elif decision is Decision.PAUSE:
            self._pause(trial, new)
        elif decision is not Decision.GO:
            self._end(trial, "done" if decision is Decision.DONE else "pruned")
        self._end_given_up()

    def _is_news(self, trial: Trial) -> bool:
        """True if the last epoch was not known before."""
        return trial.epoch > len(trial.known)

    def _note_value(self, trial: Trial, value: float) -> None:
        if value < trial.best[0] - self.goal.min_delta * abs(trial.best[0]) or not trial.best[1]:
            trial.improved = trial.epoch
        if value < trial.best[0]:
            trial.best = (value, trial.epoch)
        if not self.trajectory or value < self.goal.sign * self.trajectory[-1][1]:
            self.trajectory.append((time.monotonic() - self._began_s, self.goal.sign * value))

    def _impatient(self, trial: Trial) -> bool:
        patience = self.goal.patience
        return patience is not None and trial.epoch - trial.improved >= patience

    def _pause(self, trial: Trial, new: bool) -> None:
        trial.status = "paused"
        self._active.pop(trial.number, None)
        if new:
            self._unwritten[trial.number] = trial

    def _end_given_up(self) -> None:
        for number in self.algorithm.given_up():
            self._end(self.trials[number], "given up")

    def _fail(self, trial: Trial, failure: str, message: str) -> None:
        trial.failure, trial.message = failure, message
        self.algorithm.ended(trial.number, None)
        self._end(trial, "failed")
        self._end_given_up()

    def _end(self, trial: Trial, status: str) -> None:
        trial.status, trial.state, trial.kept = status, None, None
        self._active.pop(trial.number, None)
        if self._written.get(trial.number) != (status, trial.epoch):
            self._unwritten[trial.number] = trial
        self._say("end", trial)

    # -- disk ------------------------------------------------------------------------------------------------------

    def _write(self, lose_nothing: bool = False) -> None:
        """Write the rungs and ends since the last writing, unless that was a moment ago. A trial that its rung has
        ended leaves its array now: it needs no state there.

        Where others may continue from a trial's earlier state, all trials on disk are of one generation: what waits is
        kept as it was at the end of its generation, until that is written or the next generation has ended.
        """
        with deferred():
            trials = list(self._unwritten.values())
            states = {trial.number: self.trainer.park(trial) for trial in trials if trial.status == "paused"}
            now = {trial.number: (trial, states.get(trial.number)) for trial in trials}
            ended = self.algorithm.keeps_states and not self._active  # a generation, so that all states are of one
            if self.store is not None and time.monotonic() - self._wrote_s < self.may_lose_s and not lose_nothing:
                if ended:
                    self._generation |= {n: (trial.as_it_is(), state) for n, (trial, state) in now.items()}
                    self._unwritten.clear()
                return
            if ended:
                self._save((self._generation | now).values(), at_once=bool(self._generation))
            else:
                self._save(self._generation.values(), at_once=True)
                self._save(now.values())
            if now or self._generation:
                self._generation = {}
                self._unwritten.clear()
                self._wrote_s = time.monotonic()

    def _save(self, trials: Iterable[tuple[Trial, Any]], at_once: bool = False) -> None:
        """Write rungs of trials, with their states. The best weights come first: what a record says is never better
        than what is kept.

        The records are written together, also of those before one whose state cannot be written; of all or of none
        where they must be of one moment (`at_once`).
        """
        with deferred():
            trials = [each for each in trials if self._writes(each[0])]
            if self.store is None or not trials:
                return
            self._save_best()
            written: list[Trial] = []
            try:
                for trial, state in trials:
                    path = self.store.save_state(trial, state)
                    written.append(trial)
                    if path is not None:
                        trial.kept = path
                        if trial.status == "paused":
                            trial.state = path
            finally:
                if len(written) == len(trials) or (written and not at_once):
                    self.store.save(written, self.metric or "value", self.goal.sign, at_once)

    def _writes(self, trial: Trial) -> bool:
        """True if this process writes the record of a trial."""
        return self.store is not None

    def _save_best(self) -> None:
        if self.store is not None and not self.best.saved:
            self.store.save_best(self.best.to_dict())
            self.best.saved = True

    def _load_best(self) -> None:
        found = self.store.load_best() if self.store else None
        if found is not None:
            self.best = Best.from_dict(found)
        elif self.store and self._kept:  # weights that cannot be had back without training
            self._kept = {}
            self.store.forget()

    def _save_under_way(self) -> None:
        """Write the trials under way as they are after their last whole epoch, told to the algorithm or not."""
        if self.store is None:
            return
        self._write(lose_nothing=True)
        for trial in list(self._active.values()):
            found = self._heard.get(trial.number, (trial, None))[1]
            told = [dict(found)] if isinstance(found, dict) else []
            if trial.trained != trial.epoch + len(told):
                continue
            state = self.trainer.peek(trial)
            if state is not None and not isinstance(state, Path):
                trial.history += told
                try:
                    self._save([(trial, state)])
                finally:
                    del trial.history[len(trial.history) - len(told) :]
        self._saved_s = time.monotonic()

    def _say(self, kind: str, trial: Trial) -> None:
        metrics = trial.history[-1] if trial.history else {}
        self.tell(Event(kind, trial.number, dict(trial.config), trial.epoch, metrics, trial.status), self)

    def require_values(self) -> None:
        """Refuse a sweep of which no trial has a value.

        Raises:
            NothingTrained: every trial failed; the message has the first reason.
        """
        trials = self.trials.values()
        if trials and all(trial.status == "failed" and not trial.best[1] for trial in trials):
            first = min(trials, key=lambda trial: trial.number)
            raise NothingTrained(
                f"all {len(self.trials)} trials failed, so there is no best one; trial {first.number}: {first.message}"
            )


def _is_nan(metrics: Mapping[str, float]) -> bool:
    """True if the training loss is NaN: the trial has failed."""
    return math.isnan(metrics.get("train_loss", 0.0))
