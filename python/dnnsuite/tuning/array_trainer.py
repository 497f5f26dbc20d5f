# SPDX-License-Identifier: MIT
"""Trials in one fused array: slots that are filled again as trials end, an epoch at a time."""

from __future__ import annotations

import math
import numbers
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from .._fuse import asks_for_numbers, fuse, run_in_a_loop, stack, state_bytes
from .._step import StepRunner
from ..errors import InvalidArgument
from .feeds import Feed
from .recipe import Recipe
from .slots import read_slot, seed_slot, write_slot
from .torch_schedules import TorchSchedules, follows_metric
from .trainee import size_of
from .trial import Trial

__all__ = ["Evaluation", "TrialArray"]

_LIGHT_BYTES = 2**22  # of parameters of all models: less is mostly overhead, which one shard saves
_UNREAD_STEPS = 4  # steps whose losses wait to be read

Evaluation = Callable[[Any], Any] | Feed | None
Found = dict[str, float] | BaseException


class TrialArray:
    """An array of trials of one group, its optimizer, schedule and runner.

    Args:
        evaluation: a `Feed` of held-out batches, a function of one plain model, or None.
        metric: that a schedule such as ReduceLROnPlateau follows.
    """

    def __init__(self, recipe: Recipe, evaluation: Evaluation, metric: str, threads: int) -> None:
        self._recipe, self._evaluation, self._metric, self._threads = recipe, evaluation, metric, threads
        self.trials: list[Trial] = []
        self._trained: dict[int, int] = {}  # epochs in the slots' weights, by trial
        self._of_base: dict[int, frozenset[str]] = {}  # names of tensors that no state needs, by trial
        self._array: Any = None
        self._optimizer: Any = None
        self._schedule: Any = None
        self._runner: StepRunner | None = None

    # -- who is in it ----------------------------------------------------------------------------------------------

    def hold(self, trials: Sequence[Trial]) -> None:
        """Hold exactly these trials: those present stay, others take the slots of those that leave."""
        staying = {id(trial) for trial in trials if self._is_current(trial)}
        leaving = [slot for slot, held in enumerate(self.trials) if id(held) not in staying]
        coming = deque(trial for trial in trials if id(trial) not in staying)
        if len(leaving) == len(self.trials):
            self._begin(list(trials))
            return
        for slot in [slot for slot in leaving if coming]:
            if coming:
                self._replace(slot, coming.popleft())
                leaving.remove(slot)
        if leaving:
            self._array.drop(leaving, *self._companions)
            self.trials = [held for slot, held in enumerate(self.trials) if slot not in leaving]
        while coming:
            self._append(coming.popleft())

    def _is_current(self, trial: Trial) -> bool:
        """True if a trial's slot has its state of now, which a copy of it need not replace."""
        if not any(held is trial for held in self.trials) or self._trained[trial.number] != trial.trained:
            return False  # another process may have trained it since
        if trial.state is not None and not _has_inherited(trial):
            trial.state = None
        return trial.state is None

    @property
    def _companions(self) -> list[Any]:
        return [one for one in (self._optimizer, self._schedule) if one is not None]

    def _begin(self, trials: list[Trial]) -> None:
        self.close()
        trainees = [self._trainee(trial) for trial in trials]
        recipe = self._recipe
        assert recipe.optimization is not None, "no trial was admitted"
        self._array = fuse(trainees, seeds=[trial.seed for trial in trials])
        configs = [trial.config for trial in trials]
        self._optimizer, self._schedule = recipe.optimization.made(self._array, trainees, configs)
        self.trials = trials
        for slot, trial in enumerate(trials):
            self._go_on(slot, trial)
        self._runner = StepRunner(
            self._array,
            self._optimizer,
            self._losses,
            threads=self._threads,
            width=self._shard_width(len(trials)),
        )

    def _shard_width(self, B: int) -> int:
        """Models per thread and step. It is given, not measured, so that a step has the same bits in each run."""
        shared, own, _ = state_bytes(self._array)
        # What is shared is computed once for all models of a step.
        light = shared > 0 or B * own <= _LIGHT_BYTES
        return -(-B // max(1, self._threads)) if light else 1

    def _trainee(self, trial: Trial) -> Any:
        trainee = self._recipe.build(trial)
        self._of_base[trial.number] = self._recipe.names_of_base(trainee)
        if trial.state is not None:
            trainee.load_state_dict({**trainee.state_dict(), **trial.state["model"]})
        return trainee.train()

    def _go_on(self, slot: int, trial: Trial) -> None:
        self._trained[trial.number] = trial.trained
        if trial.state is not None:
            write_slot(trial.state, slot, self._array, self._optimizer, self._schedule)
            self._use_own_values(slot, trial)
            trial.state = None

    def _use_own_values(self, slot: int, trial: Trial) -> None:
        """Give a trial that took another's state over the values of its own configuration."""
        if not _has_inherited(trial):
            return
        assert self._recipe.optimization is not None
        seed_slot(self._array, slot, trial.seed + 7919 * trial.trained)  # not the masks that its source draws
        values, _ = self._recipe.optimization.fresh(self._recipe.build(trial), trial.config)
        for group in self._optimizer.param_groups:
            for name, value in values.items():
                if isinstance(group.get(name), torch.Tensor) and name in self._optimizer.per_model:
                    vector = group[name].clone()
                    vector[slot] = value
                    group[name] = vector

    def _replace(self, slot: int, trial: Trial) -> None:
        self._fill(
            trial,
            lambda trainee, values: self._array.replace(slot, trainee, *self._companions, **values),
            slot,
        )
        self.trials[slot] = trial

    def _append(self, trial: Trial) -> None:
        slot = len(self.trials)
        self._fill(
            trial, lambda trainee, values: self._array.append(trainee, *self._companions, **values), slot
        )
        self.trials.append(trial)

    def _fill(self, trial: Trial, edit: Callable[[Any, Any], None], slot: int) -> None:
        assert self._recipe.optimization is not None
        trainee = self._trainee(trial)
        values, rest = self._recipe.optimization.fresh(trainee, trial.config)
        edit(trainee, values)
        rest(self._optimizer, self._schedule, slot)
        seed_slot(self._array, slot, trial.seed)
        self._go_on(slot, trial)

    def state(self, trial: Trial) -> dict[str, Any]:
        """Copy the state of one of its trials."""
        held = read_slot(
            self._slot(trial), self._array, self._optimizer, self._schedule, self._of_base[trial.number]
        )
        return {**held, "epoch": trial.trained}

    def weights(self, trial: Trial) -> dict[str, Any]:
        """Copy one of its trials' model, as the model's own `state_dict`."""
        held = self._array.model_state_dict(self._slot(trial))
        return {
            name.removeprefix("model."): v.detach().to("cpu", copy=True) if isinstance(v, torch.Tensor) else v
            for name, v in held.items()
        }

    def _slot(self, trial: Trial) -> int:
        return next(slot for slot, held in enumerate(self.trials) if held is trial)

    # -- an epoch --------------------------------------------------------------------------------------------------

    def epoch(self) -> list[Found]:
        """Train and validate an epoch of each trial; return its metrics, or the exception of its validation.

        Raises:
            Exception: of a step of the array, which no trial has ended then.
        """
        began = time.perf_counter()
        losses = self._train()
        found: list[Found] = [{"train_loss": loss} for loss in losses.tolist()]
        found = self._validated(found)
        self._follow_schedule(found)
        share = (time.perf_counter() - began) / len(self.trials)
        for trial in self.trials:
            trial.seconds += share
            trial.trained += 1
            self._trained[trial.number] = trial.trained
        return found

    def _train(self) -> torch.Tensor:
        """Losses `[B]`, means over the batches of the epoch."""
        assert self._runner is not None
        self._array.train()
        total, count = torch.zeros(len(self.trials), dtype=torch.float64), 0
        steps: deque[Any] = deque()
        by_batch = self._steps_by_batch
        feeds = [self._recipe.feeds.of(trial.number, trial.config) for trial in self.trials]
        for batch in _side_by_side(
            [(feed, trial.trained) for feed, trial in zip(feeds, self.trials, strict=True)]
        ):
            steps.append(self._runner.step(*self._placed(batch)))
            if by_batch:
                self._schedule.step()
            count += 1
            while len(steps) > _UNREAD_STEPS:
                total += steps.popleft().losses().detach().double().cpu()
        self._runner.synchronize()
        for step in steps:
            total += step.losses().detach().double().cpu()
        if not count:
            raise InvalidArgument("an epoch of train has no batch")
        return total / count

    def _losses(self, array: Any, *batch: Any) -> Any:
        """Losses `[B]` in training, measures by name in validation."""
        with self._recipe.lent_autocast():
            return array(*batch)

    def _placed(self, batch: Any) -> tuple[Any, ...]:
        """The arguments of a step: a mapping is one, a sequence is many."""
        device = self._recipe.device
        if device != "cpu":
            batch = _mapped(lambda x: x.to(device, non_blocking=True), batch)
        return tuple(batch) if isinstance(batch, (list, tuple)) and not _is_ragged(batch) else (batch,)

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

    def _validated(self, found: list[Found]) -> list[Found]:
        evaluation = self._evaluation
        if evaluation is None:
            return found
        if isinstance(evaluation, Feed):
            measured = self._measured(evaluation)
            return [
                _joined(one, {name: column[i] for name, column in measured.items()})
                for i, one in enumerate(found)
            ]
        return [_joined(one, self._asked(evaluation, slot)) for slot, one in enumerate(found)]

    def _asked(self, evaluate: Callable[[Any], Any], slot: int) -> Any:
        """Call the user's function on one model; returns its exception if it raises."""
        model = self._array[slot].model.eval()
        try:
            with torch.no_grad():
                return evaluate(model)
        except Exception as error:
            return error

    @torch.no_grad()
    def _measured(self, feed: Feed) -> dict[str, list[float]]:
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
                for name, value in self._losses(
                    self._array, *self._placed(_stacked([batch] * B, True))
                ).items():
                    column = value if isinstance(value, torch.Tensor) else torch.full((B,), float(value))
                    totals[name] = totals.get(name, 0) + column.detach().double().cpu() * size
        finally:
            self._array.train()
            run_in_a_loop(self._array, None)
        if not count:
            raise InvalidArgument("evaluate has no batch")
        return {name: (total / count).tolist() for name, total in totals.items()}

    def close(self) -> None:
        """End its runner."""
        if self._runner is not None:
            self._runner.close()
        self._runner = self._array = self._optimizer = self._schedule = None
        self.trials = []


def _followed(found: Found, metric: str) -> float:
    """The value that a schedule follows: the metric, else a loss."""
    if not isinstance(found, dict):
        return math.nan
    return next(
        (found[name] for name in (metric, "val_loss", "value", "train_loss") if name in found), math.nan
    )


def _has_inherited(trial: Trial) -> bool:
    """True if a trial goes on from another's state now."""
    return bool(trial.inherited) and trial.inherited[-1][0] == trial.trained


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
    raise InvalidArgument(
        f"evaluate returned {type(value).__name__} for {name!r}: return a number, or numbers by name"
    )


def _side_by_side(readers: Sequence[tuple[Feed, int]]) -> Iterator[Any]:
    """Batches `[B, N, ...]`, one of each reader (feed, epoch); those alike are read once."""
    keys = list(dict.fromkeys((id(feed), epoch) for feed, epoch in readers))
    feeds = {id(feed): feed for feed, _ in readers}
    iterators = [feeds[feed].epoch(epoch) for feed, epoch in keys]
    places = [keys.index((id(feed), epoch)) for feed, epoch in readers]
    for number, batches in enumerate(_together(iterators)):
        if batches is None:
            raise InvalidArgument(
                f"the trials' data have different numbers of batches: one ends after {number}; give loaders with a "
                "length, whose trials are dealt to arrays of their own"
            )
        yield _stacked([batches[place] for place in places], len(keys) == 1)


def _together(iterators: Sequence[Iterator[Any]]) -> Iterator[list[Any] | None]:
    while True:
        batches = [next(iterator, None) for iterator in iterators]
        if all(batch is None for batch in batches):
            return
        yield None if any(batch is None for batch in batches) else batches


def _stacked(batches: Sequence[Any], shared: bool) -> Any:
    """One batch for all models out of theirs: shared without a copy, or stacked, or a list where sizes differ."""
    first = batches[0]
    if isinstance(first, torch.Tensor):
        if shared:
            return stack(first, len(batches))
        if len({batch.shape for batch in batches}) > 1:
            return list(batches)
        return torch.stack(list(batches))
    if isinstance(first, Mapping):
        return {name: _stacked([batch[name] for batch in batches], shared) for name in first}
    if isinstance(first, (list, tuple)):
        return tuple(_stacked([batch[i] for batch in batches], shared) for i in range(len(first)))
    raise InvalidArgument(
        f"a batch holds a {type(first).__name__}: it may hold tensors, and lists and dicts of them"
    )


def _is_ragged(batch: Any) -> bool:
    return isinstance(batch, list)


def _mapped(function: Callable[[torch.Tensor], torch.Tensor], batch: Any) -> Any:
    if isinstance(batch, torch.Tensor):
        return function(batch)
    if isinstance(batch, Mapping):
        return {name: _mapped(function, part) for name, part in batch.items()}
    return type(batch)(_mapped(function, part) for part in batch)
