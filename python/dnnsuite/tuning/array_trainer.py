# SPDX-License-Identifier: MIT
"""Trials in one fused array: slots that are filled again as trials end, an epoch at a time."""

from __future__ import annotations

import math
import numbers
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from .._fuse import asks_for_numbers, coverage, fuse, reads_own_values, run_in_a_loop, state_bytes
from .._fuse.coverage import Coverage
from .._seeds import seeded, watched
from .._step import StepRunner
from ..adapters.configs import Configs, configs_in, take_configs
from ..adapters.texts import Texts
from ..errors import InvalidArgument
from ..nn.random_streams import seed_slots
from .feeds import Feed, arguments_of, side_by_side, stacked
from .recipe import Recipe
from .slots import (
    TorchSchedules,
    advance,
    corner,
    follows,
    follows_metric,
    load_state,
    rates_of,
    read_slot,
    write_metric_schedule,
    write_slot,
    write_values,
)
from .trainee import size_of
from .trial import Trial

_LIGHT_BYTES = 2**22  # of parameters of a shard's models: less is mostly overhead, which one shard saves
_UNREAD_STEPS = 4  # steps whose losses wait to be read

Evaluation = Callable[[Any], Any] | Feed | Texts | None
Found = dict[str, float] | BaseException


class TrialArray:
    """An array of trials of one group, its optimizer, schedule and runner.

    Args:
        evaluation: a `Feed` of held-out batches, a function of one plain model, or None.
        metric: name of the metric that a schedule such as ReduceLROnPlateau follows.

    Attributes:
        steps: steps of the last epoch.
        drew: in the last epoch the loss or measure drew from torch's, NumPy's or Python's own generator.
        in_epoch: True while an epoch is trained, when the slots hold no state that a trial could continue from.
    """

    def __init__(self, recipe: Recipe, evaluation: Evaluation, metric: str, threads: int) -> None:
        self._recipe, self._evaluation, self._metric, self._threads = recipe, evaluation, metric, threads
        self.trials: list[Trial] = []
        self.steps, self.drew, self.in_epoch = 0, False, False
        self._trained: dict[int, int] = {}  # epochs in the slots' weights, by trial
        self._moves: dict[int, int] = {}  # times that its schedule has moved, by trial
        self._begun: dict[int, list[float]] = {}  # learning rates of its groups at its beginning, by trial
        self._of_base: dict[int, frozenset[str]] = {}  # names of tensors that no state needs, by trial
        self._shapes: dict[int, dict[str, torch.Size]] = {}  # of a trial's own tensors, which an array may pad
        self._configs: Configs = {}  # of the adapters of a trial, which those of all may have in an array
        self._array: Any = None
        self._optimizer: Any = None
        self._schedule: Any = None
        self._runner: StepRunner | None = None

    # -- who is in it ----------------------------------------------------------------------------------------------

    def hold(self, trials: Sequence[Trial]) -> None:
        """Hold exactly these trials: those present stay, others take the slots of those that leave."""
        staying = {id(trial) for trial in trials if self._is_current(trial)}
        leaving = [slot for slot, held in enumerate(self.trials) if id(held) not in staying]
        coming = [trial for trial in trials if id(trial) not in staying]
        for trial in coming:
            if isinstance(trial.state, Path):
                trial.state = load_state(trial.state)
        if len(leaving) == len(self.trials):
            self._begin(trials)
            return
        try:
            self._edit(leaving, coming)
        except InvalidArgument:  # as for models that differ in what those of the array are alike in
            self._begin_with_states(trials)

    def _edit(self, leaving: Sequence[int], coming: Sequence[Trial]) -> None:
        """Put trials into the slots of those that leave; let the array shrink or grow by the rest."""
        count = min(len(leaving), len(coming))
        if count:
            self._fill(leaving[:count], coming[:count])
        if leaving[count:]:
            self._array.drop(leaving[count:], *self._companions)
            self.trials = [held for slot, held in enumerate(self.trials) if slot not in leaving[count:]]
        if coming[count:]:
            B = len(self.trials)
            self._fill(range(B, B + len(coming) - count), coming[count:])

    def _begin_with_states(self, trials: Sequence[Trial]) -> None:
        """Begin another array, in which the trials of this one continue from their states."""
        for trial in trials:
            if self._is_current(trial):
                trial.state = self.state(trial)
        self._begin(trials)

    def _is_current(self, trial: Trial) -> bool:
        """True if a trial's slot holds its current state, which a copy need not replace."""
        if not any(held is trial for held in self.trials) or self._trained[trial.number] != trial.trained:
            return False  # another process may have trained it since
        if trial.state is not None and not trial.goes_on_as_copy:
            trial.state = None
        return trial.state is None

    @property
    def _companions(self) -> list[Any]:
        return [one for one in (self._optimizer, self._schedule) if one is not None]

    def _begin(self, trials: Sequence[Trial]) -> None:
        self.close()
        self._configs = {}
        trainees = [self._trainee(trial) for trial in trials]
        recipe = self._recipe
        assert recipe.optimization is not None, "no trial was admitted"
        self._array = self._fused(trainees, [trial.seed for trial in trials])
        configs = [self._config(trial) for trial in trials]
        self._optimizer, self._schedule = recipe.optimization.made(self._array, trainees, configs)
        self.trials = list(trials)
        for slot, trial in enumerate(trials):
            self._go_on(slot, trial)
        self._begin_steps()

    def _begin_steps(self) -> None:
        self._runner = StepRunner(
            self._array, self._optimizer, _losses, threads=self._threads, width=self._shard_width(len(self.trials)),
            accumulate=self._recipe.accumulate,
        )  # fmt: skip

    def _fused(self, trainees: Sequence[Any], seeds: list[int]) -> Any:
        return fuse(trainees, seeds=seeds)

    def _config(self, trial: Trial) -> Mapping[str, Any]:
        return trial.config

    def _shard_width(self, B: int) -> int:
        """Models per thread and step. It is given, not measured, so that a step has the same bits in each run."""
        shared, own, _ = state_bytes(self._array)
        whole = -(-B // max(1, self._threads))
        if shared:  # what is computed once for all models of a step
            return whole
        shards = -(-B // max(1, _LIGHT_BYTES // max(1, own)))  # of a size each
        return min(whole, -(-B // shards))

    def _trainee(self, trial: Trial) -> Any:
        trainee = self._recipe.build(trial)
        self._of_base[trial.number] = self._recipe.names_of_base(trainee)
        held = trainee.state_dict()
        self._shapes[trial.number] = {n: v.shape for n, v in held.items() if isinstance(v, torch.Tensor)}
        if trial.state is not None:
            taken = trial.state["model"]
            own = self._recipe.given(trial, taken) if trial.goes_on_as_copy else {}
            trainee.load_state_dict({**held, **taken, **own})
        self._configs = self._configs or configs_in(trainee)
        take_configs(trainee, self._configs)
        return trainee.train()

    def _go_on(self, slot: int, trial: Trial) -> None:
        """Let the trial in a slot, which is at its beginning, continue from the state that it has."""
        self._trained[trial.number] = trial.trained
        self._moves[trial.number] = 0
        self._begun[trial.number] = rates_of(slot, self._optimizer)
        state, trial.state = trial.state, None
        if state is None:
            return
        self._moves[trial.number] = state["moves"]
        write_slot(state, slot, self._array, self._optimizer)
        if trial.goes_on_as_copy:
            self._explore(slot, trial, state)
            return
        self._begun[trial.number] = state["begun"]
        write_values(state, slot, self._optimizer, self._schedule)

    def _explore(self, slot: int, trial: Trial, state: dict[str, Any]) -> None:
        """Let a copy keep its own hyper-parameters: its schedule is that of its own configuration, as far as it has
        come. One that follows a metric keeps what it has heard, and the share of the rate that it has left."""
        seed_slots(self._array, {slot: trial.seed + 7919 * trial.trained})  # not the masks that its source draws
        if self._schedule is None:
            return
        if follows(self._schedule, slot):
            write_metric_schedule(state, slot, self._optimizer, self._schedule)
        else:
            advance(self._schedule, slot, state["moves"])

    def _fill(self, slots: Sequence[int], trials: Sequence[Trial]) -> None:
        """Put trials into slots; those past the end are new."""
        assert self._recipe.optimization is not None
        trainees = [self._trainee(trial) for trial in trials]
        fresh = [
            self._recipe.optimization.fresh(trainee, self._config(trial))
            for trainee, trial in zip(trainees, trials, strict=True)
        ]
        values = _by_model([own for own, _ in fresh])
        if values is None:
            for slot, trial in zip(slots, trials, strict=True):
                self._fill([slot], [trial])
            return
        if slots[0] < len(self.trials):
            self._array.replace(slots, trainees, *self._companions, **values)
        else:
            self._array.append(trainees, *self._companions, **values)
        seed_slots(self._array, {slot: trial.seed for slot, trial in zip(slots, trials, strict=True)})
        for slot, trial, (_, rest) in zip(slots, trials, fresh, strict=True):
            rest(self._optimizer, self._schedule, slot)
            self._go_on(slot, trial)
            self.trials[slot : slot + 1] = [trial]

    def state(self, trial: Trial) -> dict[str, Any]:
        """Copy the state of one of its trials."""
        held = read_slot(self._slot(trial), self._array, self._optimizer, self._schedule, self._of_base[trial.number])
        number = trial.number
        held["model"] = self._own(trial, held["model"])
        return {**held, "epoch": trial.trained, "moves": self._moves[number], "begun": self._begun[number]}

    def weights(self, trial: Trial) -> dict[str, Any]:
        """Copy one of its trials' model, as the model's own `state_dict`."""
        base = self._of_base[trial.number]
        held = self._own(trial, self._array.model_state_dict(self._slot(trial)))
        held = {name: value for name, value in held.items() if name not in base}
        return {
            name.removeprefix("model."): v.detach().to("cpu", copy=True) if isinstance(v, torch.Tensor) else v
            for name, v in held.items()
        }

    def _own(self, trial: Trial, held: Mapping[str, Any]) -> dict[str, Any]:
        """Cut what the array has padded of a trial's tensors off."""
        shapes = self._shapes[trial.number]
        return {name: corner(value, shapes[name]) if name in shapes else value for name, value in held.items()}

    def _slot(self, trial: Trial) -> int:
        return next(slot for slot, held in enumerate(self.trials) if held is trial)

    @property
    def runs_apart(self) -> bool:
        """True if models ran one by one, as code reads values of which each has its own."""
        return reads_own_values(self._array)

    def coverage(self) -> Coverage:
        """List how each part of a trial's model runs in the array."""
        prefix = "model"
        return Coverage(c._replace(name=c.name.removeprefix(prefix).removeprefix(".")) for c in coverage(self._array))

    # -- an epoch --------------------------------------------------------------------------------------------------

    def epoch(self) -> list[Found | None]:
        """Train and validate an epoch of each trial; return its metrics, or the exception of its validation; None for
        one that is in the middle of its epoch.

        Raises:
            Exception: a step of the array failed; no trial has ended its epoch then.
        """
        assert self._runner is not None
        began, audits = time.perf_counter(), self._runner.audits_passed
        self.in_epoch = True
        with watched(_seed_of(self.trials[0])) as drawn:
            losses = self._train()
            found: list[Found] = [{"train_loss": loss} for loss in losses.tolist()]
            found = self._validated(found, range(len(found)))
        self.drew = drawn.any
        audits = self._runner.audits_passed - audits
        self._follow_schedule(found)
        share = (time.perf_counter() - began) / len(self.trials)
        moves = self.steps if self._steps_by_batch else 1
        for trial in self.trials:
            self._moves[trial.number] += moves
            trial.seconds += share
            trial.audits_passed += audits
            trial.trained += 1
            self._trained[trial.number] = trial.trained
        self.in_epoch = False
        return list(found)

    def _train(self) -> torch.Tensor:
        """Losses `[B]`, means over the batches of the epoch."""
        assert self._runner is not None
        self._array.train()
        self._turn("train")
        total, count = torch.zeros(len(self.trials), dtype=torch.float64), 0
        steps: deque[Any] = deque()
        by_batch = self._steps_by_batch
        feeds = [self._recipe.feeds.of(trial.number, trial.config) for trial in self.trials]
        for batch in side_by_side([(feed, trial.trained) for feed, trial in zip(feeds, self.trials, strict=True)]):
            with self._recipe.lent_autocast():
                steps.append(self._runner.step(*arguments_of(batch, self._recipe.device)))
            if self._recipe.after_step is not None:
                self._runner.synchronize()
                with torch.no_grad():
                    self._recipe.after_step(self._array.model)
            if by_batch:
                self._schedule.step()
            count += 1
            while len(steps) > _UNREAD_STEPS:
                total += steps.popleft().losses().detach().double().cpu()
        self._runner.synchronize()
        for step in steps:
            total += step.losses().detach().double().cpu()
        self._turn("eval")
        if not count:
            raise InvalidArgument("an epoch of train has no batch: give more samples or a smaller batch_size")
        self.steps = count
        return total / count

    def _turn(self, to: str) -> None:
        """Let an optimizer whose models are others in training than in evaluation know which it is."""
        turn = getattr(self._optimizer, to, None)
        if turn is not None:
            turn()

    @property
    def _steps_by_batch(self) -> bool:
        """True if the schedule moves after each batch; else after each epoch."""
        return self._schedule is not None and self._recipe.steps_by_batch(self._schedule)

    def _follow_schedule(self, found: Sequence[Found]) -> None:
        if self._schedule is None or self._steps_by_batch:
            return
        values = [_followed(one, self._metric) for one in found]
        if isinstance(self._schedule, TorchSchedules) or follows_metric(self._schedule):
            self._schedule.step(values)
        else:
            self._schedule.step()

    # -- validation ------------------------------------------------------------------------------------------------

    def _validated(self, found: list[Found], slots: Sequence[int]) -> list[Found]:
        """Add measures to what was found of the models in `slots`."""
        evaluation = self._evaluation
        if evaluation is None:
            return found
        if isinstance(evaluation, (Feed, Texts)):
            measured = self._measured(evaluation, slots)
            told = [{name: column[slot] for name, column in measured.items()} for slot in slots]
        else:
            told = [self._asked(evaluation, slot) for slot in slots]
        return [_joined(one, more) for one, more in zip(found, told, strict=True)]

    def _asked(self, evaluate: Callable[[Any], Any], slot: int) -> Any:
        """Call the user's function on one model; returns its exception if it raises."""
        model = self._plain(slot)
        try:
            with torch.no_grad(), seeded(_seed_of(self.trials[slot])):
                return evaluate(model)
        except Exception as error:
            return error

    def _plain(self, slot: int) -> Any:
        return self._array[slot].model.eval()

    @torch.no_grad()
    def _measured(self, feed: Any, slots: Sequence[int]) -> dict[str, list[float]]:
        """Measures by name, `[B]` means over all samples."""
        B = len(self.trials)
        totals: dict[str, torch.Tensor] = {}
        count = 0
        self._array.eval()
        run_in_a_loop(self._array, asks_for_numbers(self._array))
        try:
            for batch in feed.epoch(0):
                size = size_of(batch)
                count += size
                given = arguments_of(stacked([batch] * B, True), self._recipe.device)
                with self._recipe.lent_autocast():
                    measured = _losses(self._array, *given)
                for name, value in measured.items():
                    column = value if isinstance(value, torch.Tensor) else torch.full((B,), float(value))
                    totals[name] = totals.get(name, 0) + column.detach().double().cpu() * size
        finally:
            self._array.train()
            run_in_a_loop(self._array, None)
        if not count:
            raise InvalidArgument("evaluate has no batch: give samples, or leave evaluate out")
        return {name: (total / count).tolist() for name, total in totals.items()}

    def close(self) -> None:
        """End its runner."""
        if self._runner is not None:
            self._runner.close()
        self._runner = self._array = self._optimizer = self._schedule = None
        self.trials = []


def _seed_of(trial: Trial) -> int:
    """Seed of what a trial draws from the process's generators in its next epoch, whatever was drawn before."""
    return ((trial.seed + 1) * 1_000_003 + trial.trained) % 2**63


def _losses(array: Any, *batch: Any) -> Any:
    """Losses `[B]` in training, measures by name in validation. It reaches nothing of a sweep: what a step's code can
    reach is read in every step."""
    return array(*batch)


def _by_model(values: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Values of fresh models as an edit of several takes them; None if only those of a single model have a form."""
    first = values[0]
    if len(values) == 1:
        return dict(first)
    numbers_only = all(isinstance(value, (int, float)) for own in values for value in own.values())
    if not numbers_only or any(own.keys() != first.keys() for own in values):
        return None
    return {name: [own[name] for own in values] for name in first}


def _followed(found: Found, metric: str) -> float:
    """Return the value that a schedule follows: the metric, else a loss."""
    if not isinstance(found, dict):
        return math.nan
    return next((found[name] for name in (metric, "val_loss", "value", "train_loss") if name in found), math.nan)


def _joined(found: Found, asked: Any) -> Found:
    """Metrics of training and of validation together; a number alone is called `value`."""
    if isinstance(asked, BaseException):
        return asked
    if isinstance(asked, Mapping):
        return {**found, **{str(name): _number(name, value) for name, value in asked.items()}}  # type: ignore[dict-item]
    return {**found, "value": _number("value", asked)}  # type: ignore[dict-item]


def _number(name: Any, value: Any) -> float:
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        return float(value)
    if isinstance(value, (numbers.Real, float, int)):
        return float(value)
    raise InvalidArgument(f"evaluate returned {type(value).__name__} for {name!r}: return a number, or numbers by name")
