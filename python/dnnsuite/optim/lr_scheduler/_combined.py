# SPDX-License-Identifier: MIT
"""Schedules made of schedules, of the user's functions of the epoch, and of a metric: it lowers the learning rate of a
model whose metric stops improving."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ...errors import InvalidArgument
from .._values import as_vector, check_indices, pick
from ._base import Formula, LRScheduler, Vector, require

_TORCHS: Any = torch.optim.lr_scheduler.ReduceLROnPlateau


class ReduceLROnPlateau(Formula, _TORCHS):
    """`torch.optim.lr_scheduler.ReduceLROnPlateau` for B models: `step` takes a metric `[B]`, and each has its own."""

    per_model = ("factor", "patience", "threshold", "cooldown", "min_lr", "eps")

    def _take(self, given: dict[str, Any]) -> None:
        self.mode, self.threshold_mode = given["mode"], given["threshold_mode"]
        for name, values in (("mode", ("min", "max")), ("threshold_mode", ("rel", "abs"))):
            if given[name] not in values:
                raise InvalidArgument(f"{name} is {given[name]!r}; it must be {' or '.join(values)}")

    def _check(self, last_epoch: Any) -> None:
        require(self.factor < 1, "factor", self.factor, "it must be less than 1")
        self.base_lrs = []
        self.last_epoch = torch.zeros(self.B, dtype=torch.int64)
        self.best = torch.full((self.B,), self._worst(), dtype=torch.float64)
        self.num_bad_epochs = torch.zeros(self.B, dtype=torch.float64)
        self.cooldown_counter = torch.zeros(self.B, dtype=torch.float64)

    def _worst(self) -> float:
        return math.inf if self.mode == "min" else -math.inf

    def _better(self, metrics: Vector) -> Vector:
        sign = 1.0 if self.mode == "max" else -1.0
        if self.threshold_mode == "abs":
            bound = self.best + sign * self.threshold
        else:
            bound = self.best * (1.0 + sign * self.threshold)
        return metrics > bound if self.mode == "max" else metrics < bound

    def step(self, metrics: Any = None) -> None:
        """End an epoch with each model's metric, `[B]`."""
        self._check_width()
        if metrics is None:
            raise InvalidArgument("ReduceLROnPlateau.step takes the models' metrics")
        current = torch.as_tensor(metrics).detach().to("cpu", torch.float64)
        if current.shape != (self.B,):
            raise InvalidArgument(f"metrics has shape {list(current.shape)} for {self.B} models: give one per model")
        self._step_count += 1
        self.last_epoch = self.last_epoch + 1
        better = self._better(current)
        self.best = torch.where(better, current, self.best)
        cooling = self.cooldown_counter > 0
        self.num_bad_epochs = torch.where(better | cooling, 0.0, self.num_bad_epochs + 1)
        self.cooldown_counter = torch.where(cooling, self.cooldown_counter - 1, self.cooldown_counter)
        reduced = self.num_bad_epochs > self.patience
        for group in self.optimizer.param_groups:
            lr = group["lr"].cpu()
            new = torch.maximum(lr * self.factor, self.min_lr)
            group["lr"] = torch.where(reduced & (lr - new > self.eps), new, lr).to(group["lr"].device)
        self.cooldown_counter = torch.where(reduced, self.cooldown, self.cooldown_counter)
        self.num_bad_epochs = torch.where(reduced, 0.0, self.num_bad_epochs)

    def _begin(self, new: Vector) -> None:
        self.best[new] = self._worst()


Function = Callable[[int], Any]


class LambdaLR(LRScheduler):
    """`torch.optim.lr_scheduler.LambdaLR` for B models: the first rate times `lr_lambda(epoch)`.

    `lr_lambda` is a function, or as in torch a list with one per group; instead of a function there may also be a tuple
    with one per model, and a function may return one number per model. `state_dict` holds no function.
    """

    def __init__(self, optimizer: Any, lr_lambda: Any, last_epoch: Any = -1) -> None:
        self._attach(optimizer)
        groups = len(optimizer.param_groups)
        lambdas = list(lr_lambda) if isinstance(lr_lambda, list) else [lr_lambda] * groups
        if len(lambdas) != groups:
            raise InvalidArgument(
                f"lr_lambda is a list of {len(lambdas)} for {groups} groups; functions of models go into a tuple"
            )
        self.lr_lambdas: list[Any] = lambdas
        for one in lambdas:
            if isinstance(one, tuple) and len(one) != self.B:
                raise InvalidArgument(f"lr_lambda is a tuple of {len(one)} functions for {self.B} models")
            if not callable(one) and not (isinstance(one, tuple) and all(map(callable, one))):
                raise InvalidArgument(f"lr_lambda is {one!r}; it must be a function of the epoch")
        super().__init__(optimizer, last_epoch)

    def _factors(self, place: int, epoch: Vector) -> Vector:
        numbers = [int(e) for e in epoch.tolist()]
        one = self.lr_lambdas[place]
        if isinstance(one, tuple):
            return torch.tensor([float(f(e)) for f, e in zip(one, numbers, strict=True)], dtype=torch.float64)
        known = {e: torch.as_tensor(one(e), dtype=torch.float64).expand(self.B) for e in sorted(set(numbers))}
        return torch.stack([known[e][model] for model, e in enumerate(numbers)])

    def rates(self, place: int, lr: Vector, epoch: Vector, initial: bool) -> Vector:
        return self.base_lrs[place] * self._factors(place, epoch)

    def select(self, indices: Sequence[int | None], functions: Sequence[Function] = (), **fresh: Any) -> None:
        """Keep some models, like `LRScheduler.select`; `functions` are the fresh models', if each has its own."""
        before = self.lr_lambdas
        B = len(self.last_epoch)
        if any(isinstance(one, tuple) for one in before) and len(functions) != list(indices).count(None):
            raise InvalidArgument(f"{list(indices).count(None)} fresh models, but {len(functions)} functions")

        def chosen(one: Any) -> Any:
            new = iter(functions)
            if not isinstance(one, tuple):
                return one
            return tuple(next(new) if i is None else one[i % B] for i in indices)

        self.lr_lambdas = [chosen(one) for one in before]
        try:
            super().select(indices, **fresh)
        except InvalidArgument:
            self.lr_lambdas = before
            raise


class MultiplicativeLR(LambdaLR):
    """`torch.optim.lr_scheduler.MultiplicativeLR` for B models: lr ← `lr_lambda(epoch)` · lr."""

    def rates(self, place: int, lr: Vector, epoch: Vector, initial: bool) -> Vector:
        return lr if initial else lr * self._factors(place, epoch)


class _Combined(LRScheduler):
    def _take(self, optimizer: Any, schedulers: Sequence[LRScheduler]) -> None:
        name = type(self).__name__
        if not schedulers:
            raise InvalidArgument(f"{name} needs at least one schedule")
        for place, one in enumerate(schedulers):
            if not isinstance(one, LRScheduler) or isinstance(one, ReduceLROnPlateau):
                raise InvalidArgument(f"{name} takes schedules that step without a metric; number {place} is {one!r}")
            if one.optimizer is not optimizer:
                raise InvalidArgument(f"{name} takes schedules of one optimizer; number {place} has another")
        self._attach(optimizer)
        self._schedulers = list(schedulers)

    def state_dict(self) -> dict[str, Any]:
        own = {name: v for name, v in self.__dict__.items() if name not in ("optimizer", "_schedulers")}
        return {**own, "_schedulers": [one.state_dict() for one in self._schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        own = {name: value for name, value in state_dict.items() if name != "_schedulers"}
        super().load_state_dict(own)
        for one, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            one.load_state_dict(state)

    def _parts(self, indices: Sequence[int | None], values: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        given = [dict(one) for one in values] or [{} for _ in self._schedulers]
        if len(given) != len(self._schedulers):
            raise InvalidArgument(f"{len(given)} sets of arguments for {len(self._schedulers)} schedules")
        for one, part in zip(self._schedulers, given, strict=True):
            if type(one).select is LRScheduler.select:
                one._fresh_arguments(list(indices).count(None), part)
        return given


class ChainedScheduler(_Combined):
    """`torch.optim.lr_scheduler.ChainedScheduler` for B models: every schedule steps, one after the other."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Any = None) -> None:
        self._take(optimizer or (schedulers[0].optimizer if schedulers else None), schedulers)
        self.last_epoch = torch.zeros(self.B, dtype=torch.int64)

    def _move(self, moving: Vector, initial: bool = False, restart: bool = False) -> None:
        for one in self._schedulers:  # as in torch a chain that begins a sequence steps, though it is its beginning
            one._move(moving, False, restart)

    def select(self, indices: Sequence[int | None], schedulers: Sequence[Mapping[str, Any]] = (), **fresh: Any) -> None:
        """Keep some models, like `LRScheduler.select`; `schedulers` are a fresh model's arguments, by schedule."""
        parts = self._parts(indices, schedulers)
        chosen = check_indices(indices, len(self.last_epoch))
        for one, part in zip(self._schedulers, parts, strict=True):
            one.select(indices, **part, **fresh)
        self.last_epoch = torch.zeros(len(chosen), dtype=torch.int64)


class SequentialLR(_Combined):
    """`torch.optim.lr_scheduler.SequentialLR` for B models: a milestone is an epoch, or one per model."""

    def __init__(
        self, optimizer: Any, schedulers: Sequence[LRScheduler], milestones: Sequence[Any], last_epoch: Any = -1
    ) -> None:
        self._take(optimizer, schedulers)
        if len(milestones) != len(schedulers) - 1:
            raise InvalidArgument(f"{len(schedulers)} schedules have {len(schedulers) - 1} milestones between them")
        self._milestones = [as_vector(m, self.B, f"milestone {i}") for i, m in enumerate(milestones)]
        self.last_epoch = as_vector(last_epoch, self.B, "last_epoch").long() + 1
        self._begin(self._all())

    def _place(self, epoch: Vector) -> Vector:
        """Index of each model's current schedule."""
        place = torch.zeros(self.B, dtype=torch.int64)
        for milestone in self._milestones:
            place += epoch >= milestone
        return place

    def _move(self, moving: Vector, initial: bool = False, restart: bool = False) -> None:
        following = torch.zeros_like(self.last_epoch) if restart else self.last_epoch + 1
        self.last_epoch = torch.where(moving, following, self.last_epoch)
        epoch = self.last_epoch.double()
        place = self._place(epoch)
        for index, one in enumerate(self._schedulers):
            here = moving & (place == index)
            entering = torch.zeros_like(here) if index == 0 else epoch == self._milestones[index - 1]
            if bool((here & entering).any()):
                one._move(here & entering, restart=True)
            if bool((here & ~entering).any()):
                one._move(here & ~entering, initial, restart)

    def select(
        self,
        indices: Sequence[int | None],
        schedulers: Sequence[Mapping[str, Any]] = (),
        milestones: Sequence[float] | None = None,
        **fresh: Any,
    ) -> None:
        """Keep some models, like `LRScheduler.select`. A fresh model begins with the first schedule; `schedulers` are
        its arguments of each schedule, and `milestones` its milestones where models have different ones."""
        parts = self._parts(indices, schedulers)
        chosen = check_indices(indices, len(self.last_epoch))
        steps = self._fresh_milestones(milestones) if None in chosen else []
        for one, part in zip(self._schedulers, parts, strict=True):
            one.select(indices, **part, **fresh)
        self.last_epoch = pick(self.last_epoch, chosen)
        self._milestones = [pick(milestone, chosen) for milestone in self._milestones]
        new = torch.tensor([index is None for index in chosen])
        for milestone, step in zip(self._milestones, steps, strict=False):
            milestone[new] = step
        if bool(new.any()):
            self._begin(new)

    def _fresh_milestones(self, given: Sequence[float] | None) -> list[float]:
        if given is None:
            values = [set(milestone.tolist()) for milestone in self._milestones]
            if any(len(one) > 1 for one in values):
                raise InvalidArgument("a fresh model of SequentialLR needs milestones: the others' differ")
            return [one.pop() for one in values]
        if len(given) != len(self._milestones):
            raise InvalidArgument(
                f"milestones are {list(given)} for {len(self._schedulers)} schedules: give one less than those"
            )
        return [float(step) for step in given]

    def _begin(self, new: Vector) -> None:
        """The models `new` enter the first schedule, as those that a sequence is made with do."""
        for group in self.optimizer.param_groups:
            rates = torch.where(new, group["initial_lr"].cpu(), group["lr"].cpu())
            group["lr"] = rates.to(group["lr"].device)
        for one in self._schedulers:
            _undo(one, new)
        place = self._place(torch.zeros(len(new)))
        for index, one in enumerate(self._schedulers):
            if bool((new & (place == index)).any()):
                one._move(new & (place == index), initial=True)


def _undo(one: LRScheduler, models: Vector) -> None:
    """Take back the step that making the schedule was for the `models`."""
    if isinstance(one, _Combined):
        for part in one._schedulers:
            _undo(part, models)
    else:
        one.last_epoch = one.last_epoch - models.long()
