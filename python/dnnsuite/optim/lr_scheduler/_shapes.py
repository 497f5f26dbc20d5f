# SPDX-License-Identifier: MIT
"""Schedules of a fixed shape, in torch's formulas, and those that cycle the rate, and the momentum against it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch

from ...errors import InvalidArgument
from .._values import as_vector, check_indices
from ._base import Formula, Vector, momentum_name, require


class StepLR(Formula):
    """`torch.optim.lr_scheduler.StepLR` for B models: lr ← gamma · lr each `step_size` epochs.

    >>> from dnnsuite import nn, optim
    >>> optimizer = optim.SGD(nn.Linear(2, 1, B=2).parameters(), lr=[1.0, 0.1])
    >>> scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=[0.5, 0.1])
    >>> optimizer.step()
    >>> scheduler.step()
    >>> [round(rate, 3) for rate in optimizer.param_groups[0]["lr"].tolist()]
    [0.5, 0.01]
    """

    per_model = ("step_size", "gamma")
    counts = ("step_size",)

    def rates(self, place: int, lr: Vector, epoch: Vector, initial: bool) -> Vector:
        return torch.where((epoch == 0) | (epoch % self.step_size != 0), lr, lr * self.gamma)

    def closed_form(self, place: int, epoch: Vector) -> Vector:
        return self.base_lrs[place] * self.gamma ** (epoch // self.step_size)


class MultiStepLR(Formula):
    """`torch.optim.lr_scheduler.MultiStepLR` for B models: `milestones` is a list of epochs, or such a list per model.

    `select` takes those of new models as the keyword `milestones`, one list for all of them.
    """

    per_model = ("gamma",)

    def _take(self, given: dict[str, Any]) -> None:
        lists = list(given["milestones"])
        if not any(isinstance(one, (list, tuple)) for one in lists):
            lists = [lists] * self.B
        if len(lists) != self.B:
            raise InvalidArgument(f"milestones has {len(lists)} lists for {self.B} models")
        self.milestones = _padded(lists)

    def rates(self, place: int, lr: Vector, epoch: Vector, initial: bool) -> Vector:
        count = (self.milestones == epoch[:, None]).sum(1)
        return torch.where(count == 0, lr, lr * self.gamma**count)

    def closed_form(self, place: int, epoch: Vector) -> Vector:
        return self.base_lrs[place] * self.gamma ** (self.milestones <= epoch[:, None]).sum(1)

    def select(self, indices: Sequence[int | None], milestones: Sequence[int] | None = None, **fresh: Any) -> None:
        if None in indices and milestones is None:
            raise InvalidArgument("a fresh model of MultiStepLR needs milestones")
        lists = [[m for m in row if math.isfinite(m)] for row in self.milestones.tolist()]
        chosen = check_indices(indices, len(lists))
        self._kept = [list(milestones or ()) if i is None else lists[i] for i in chosen]
        try:
            super().select(indices, **fresh)
        finally:
            del self._kept

    def _selected(self) -> None:
        self.milestones = _padded(self._kept)


def _padded(lists: Sequence[Sequence[float]]) -> Vector:
    """Rows of one length, filled with infinity."""
    longest = max(1, *(len(one) for one in lists))
    rows = [[*map(float, one), *[math.inf] * (longest - len(one))] for one in lists]
    return torch.tensor(rows, dtype=torch.float64)


class ConstantLR(Formula):
    """`torch.optim.lr_scheduler.ConstantLR` for B models: lr · factor until `total_iters`."""

    per_model = ("factor", "total_iters")

    def _check(self, last_epoch: Any) -> None:
        require((self.factor >= 0) & (self.factor <= 1), "factor", self.factor, "it must lie in [0, 1]")

    def rates(self, place: int, lr: Vector, epoch: Vector, initial: bool) -> Vector:
        back = torch.where(epoch == self.total_iters, lr * (1.0 / self.factor), lr)
        return torch.where(epoch == 0, lr * self.factor, back)

    def closed_form(self, place: int, epoch: Vector) -> Vector:
        return self.base_lrs[place] * (self.factor + (epoch >= self.total_iters) * (1 - self.factor))


class LinearLR(Formula):
    """`torch.optim.lr_scheduler.LinearLR` for B models: from start_factor · lr to end_factor · lr in `total_iters`."""

    per_model = ("start_factor", "end_factor", "total_iters")

    def _check(self, last_epoch: Any) -> None:
        start, end = self.start_factor, self.end_factor
        require((start > 0) & (start <= 1), "start_factor", start, "it must lie in (0, 1]")
        require((end >= 0) & (end <= 1), "end_factor", end, "it must lie in [0, 1]")

    def rates(self, place: int, lr: Vector, epoch: Vector, initial: bool) -> Vector:
        rise = self.end_factor - self.start_factor
        growth = 1.0 + rise / (self.total_iters * self.start_factor + (epoch - 1) * rise)
        later = lr if initial else torch.where(epoch > self.total_iters, lr, lr * growth)
        return torch.where(epoch == 0, lr * self.start_factor, later)

    def closed_form(self, place: int, epoch: Vector) -> Vector:
        rise = (self.end_factor - self.start_factor) * torch.minimum(self.total_iters, epoch)
        return self.base_lrs[place] * (self.start_factor + rise / self.total_iters)


class ExponentialLR(Formula):
    """`torch.optim.lr_scheduler.ExponentialLR` for B models: lr ← gamma · lr each epoch."""

    per_model = ("gamma",)

    def rates(self, place: int, lr: Vector, epoch: Vector, initial: bool) -> Vector:
        return lr if initial else lr * self.gamma

    def closed_form(self, place: int, epoch: Vector) -> Vector:
        return self.base_lrs[place] * self.gamma**epoch


class PolynomialLR(Formula):
    """`torch.optim.lr_scheduler.PolynomialLR` for B models: lr · (1 - epoch / total_iters) ** power."""

    per_model = ("total_iters", "power")

    def rates(self, place: int, lr: Vector, epoch: Vector, initial: bool) -> Vector:
        if initial:
            return lr
        total = self.total_iters
        decay = ((1.0 - epoch / total) / (1.0 - (epoch - 1) / total)) ** self.power
        return torch.where(epoch > total, lr, lr * decay)

    def closed_form(self, place: int, epoch: Vector) -> Vector:
        left = 1.0 - torch.minimum(self.total_iters, epoch) / self.total_iters
        return self.base_lrs[place] * left**self.power


class CosineAnnealingLR(Formula):
    """`torch.optim.lr_scheduler.CosineAnnealingLR` for B models: down to `eta_min` in `T_max` epochs, and up again."""

    per_model = ("T_max", "eta_min")

    def rates(self, place: int, lr: Vector, epoch: Vector, initial: bool) -> Vector:
        if initial:
            return lr
        T, eta = self.T_max, self.eta_min
        up = lr + (self.base_lrs[place] - eta) * (1 - torch.cos(math.pi / T)) / 2
        ratio = (1 + torch.cos(math.pi * epoch / T)) / (1 + torch.cos(math.pi * (epoch - 1) / T))
        return torch.where((epoch - 1 - T) % (2 * T) == 0, up, ratio * (lr - eta) + eta)

    def closed_form(self, place: int, epoch: Vector) -> Vector:
        height = (1 + torch.cos(math.pi * epoch / self.T_max)) / 2
        return self.eta_min + (self.base_lrs[place] - self.eta_min) * height


class CosineAnnealingWarmRestarts(Formula):
    """`torch.optim.lr_scheduler.CosineAnnealingWarmRestarts` for B models: periods T_0, T_0 · T_mult, ..."""

    per_model = ("T_0", "T_mult", "eta_min")
    counts = ("T_0", "T_mult")

    def _check(self, last_epoch: Any) -> None:
        self.T_i = self.T_0.clone()
        self.T_cur = as_vector(last_epoch, self.B, "last_epoch") + 1

    def _advance(self, moving: Vector) -> None:
        now = torch.where(moving, self.T_cur + 1, self.T_cur)
        over = moving & (now >= self.T_i)
        self.T_cur = torch.where(over, now % self.T_i, now)
        self.T_i = torch.where(over, self.T_i * self.T_mult, self.T_i)

    def rates(self, place: int, lr: Vector, epoch: Vector, initial: bool) -> Vector:
        height = (1 + torch.cos(math.pi * self.T_cur / self.T_i)) / 2
        return self.eta_min + (self.base_lrs[place] - self.eta_min) * height

    def _jump(self, epoch: Vector) -> None:
        growing = self.T_mult > 1
        ratio = torch.where(growing, self.T_mult, 2.0)
        restarts = torch.floor(torch.log1p(epoch / self.T_0 * (ratio - 1)) / torch.log(ratio) + 1e-9)
        before = self.T_0 * (ratio**restarts - 1) / (ratio - 1)
        self.T_cur = torch.where(growing, epoch - before, epoch % self.T_0)
        self.T_i = torch.where(growing, self.T_0 * ratio**restarts, self.T_0)

    def _begin(self, new: Vector) -> None:
        self.T_i = torch.where(new, self.T_0, self.T_i)
        super()._begin(new)


class _Cycling(Formula):
    """Momentum goes from `max_momentum` to `base_momentum` and back while the rate does the opposite."""

    per_model: ClassVar[tuple[str, ...]] = ("base_momentum", "max_momentum")
    cycle_momentum: bool

    def _start_momentum(self, last_epoch: Any) -> None:
        for group in self.optimizer.param_groups if self.cycle_momentum else ():
            self._start(group, momentum_name(group), self.max_momentum, last_epoch)

    def _start(self, group: dict[str, Any], name: str, values: Vector, last_epoch: Any) -> None:
        """Write the values of the models that begin anew."""
        held = group.get(name, values)
        group[name] = torch.where(self._starts(last_epoch), values, held.cpu()).to(held.device)


class CyclicLR(_Cycling):
    """`torch.optim.lr_scheduler.CyclicLR` for B models (Smith, 2017): numbers are one per model, for all groups."""

    per_model = ("base_lr", "max_lr", "step_size_up", "step_size_down", "gamma", *_Cycling.per_model)

    def _take(self, given: dict[str, Any]) -> None:
        mode, scale_fn = given["mode"], given["scale_fn"]
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise InvalidArgument(
                f"mode is {mode!r}; it must be triangular, triangular2 or exp_range, or give scale_fn"
            )
        if given["step_size_down"] is None:
            given["step_size_down"] = given["step_size_up"]
        self.mode, self.scale_fn, self.cycle_momentum = mode, scale_fn, given["cycle_momentum"]
        self.scale_mode = given["scale_mode"] if scale_fn else ("iterations" if mode == "exp_range" else "cycle")

    def _check(self, last_epoch: Any) -> None:
        self._start_momentum(last_epoch)
        for group in self.optimizer.param_groups:
            self._start(group, "lr", self.base_lr, last_epoch)

    def _heights(self, epoch: Vector) -> Vector:
        """Return the height above the base rate, 0 to 1, scaled."""
        total = self.step_size_up + self.step_size_down
        ratio = self.step_size_up / total
        cycle = torch.floor(1 + epoch / total)
        x = 1.0 + epoch / total - cycle
        height = torch.where(x <= ratio, x / ratio, (x - 1) / (ratio - 1))
        where = cycle if self.scale_mode == "cycle" else epoch
        if self.scale_fn is not None:
            return height * torch.tensor([float(self.scale_fn(v)) for v in where.tolist()], dtype=torch.float64)
        if self.mode == "triangular2":
            return height / 2.0 ** (where - 1)
        return height * self.gamma**where if self.mode == "exp_range" else height

    def rates(self, place: int, lr: Vector, epoch: Vector, initial: bool) -> Vector:
        return self.base_lr + (self.max_lr - self.base_lr) * self._heights(epoch)

    def _momenta(self, place: int, epoch: Vector) -> Vector | None:
        if not self.cycle_momentum:
            return None
        return self.max_momentum - (self.max_momentum - self.base_momentum) * self._heights(epoch)


class OneCycleLR(_Cycling):
    """`torch.optim.lr_scheduler.OneCycleLR` for B models (Smith and Topin, 2018), each with its own length."""

    per_model = ("max_lr", "total_steps", "pct_start", "div_factor", "final_div_factor", *_Cycling.per_model)
    counts = ("total_steps",)

    def _take(self, given: dict[str, Any]) -> None:
        if given["total_steps"] is None:
            if given["epochs"] is None or given["steps_per_epoch"] is None:
                raise InvalidArgument("give total_steps, or epochs and steps_per_epoch")
            each = [as_vector(given[name], self.B, name) for name in ("epochs", "steps_per_epoch")]
            given["total_steps"] = each[0] * each[1]
        self.anneal_strategy, self.three_phase = given["anneal_strategy"], given["three_phase"]
        self.cycle_momentum = given["cycle_momentum"]
        if self.anneal_strategy not in ("cos", "linear"):
            raise InvalidArgument(f"anneal_strategy is {self.anneal_strategy!r}; it must be cos or linear")

    def _check(self, last_epoch: Any) -> None:
        require((self.pct_start >= 0) & (self.pct_start <= 1), "pct_start", self.pct_start, "it must lie in [0, 1]")
        self._start_momentum(last_epoch)
        for group in self.optimizer.param_groups:
            if bool(self._starts(last_epoch).all()) or "initial_lr" in group:  # else the base refuses
                self._start(group, "initial_lr", self.max_lr / self.div_factor, last_epoch)

    def _begin(self, new: Vector) -> None:
        for group in self.optimizer.param_groups:
            rates = torch.where(new, self.max_lr / self.div_factor, group["initial_lr"].cpu())
            group["initial_lr"] = rates.to(group["lr"].device)
        super()._begin(new)

    def _phased(self, epoch: Vector, rate: bool) -> Vector:
        """Return the rate or the momentum at `epoch`, by the phase that each model is in."""
        total, part = self.total_steps, self.pct_start
        low, high = self.max_lr / self.div_factor, self.max_lr
        end = low / self.final_div_factor
        if not rate:
            low, high, end = self.max_momentum, self.base_momentum, self.max_momentum
        phases = [(part * total - 1, low, high), (total - 1, high, end)]
        if self.three_phase:
            phases[1:] = [(2 * part * total - 2, high, low), (total - 1, low, end)]
        starts = [torch.zeros_like(total), *(stop for stop, _, _ in phases[:-1])]
        value = torch.zeros_like(total)
        # From the last phase to the first, so that the first that has not ended decides.
        for start, (stop, first, last) in reversed(list(zip(starts, phases, strict=True))):
            share = (epoch - start) / (stop - start)
            now = self._anneal(first, last, share)
            value = torch.where(epoch <= stop, now, value) if stop is not phases[-1][0] else now
        return value

    def _anneal(self, start: Vector, end: Vector, share: Vector) -> Vector:
        if self.anneal_strategy == "linear":
            return (end - start) * share + start
        return end + (start - end) / 2.0 * (torch.cos(math.pi * share) + 1)

    def step(self, epoch: Any = None) -> None:
        self._check_width()
        following = self.last_epoch + 1 if epoch is None else as_vector(epoch, self.B, "epoch")
        done = following > self.total_steps
        if bool(done.any()):
            raise InvalidArgument(
                f"models {done.nonzero().flatten().tolist()} have had their total_steps of OneCycleLR"
            )
        super().step(epoch)

    def rates(self, place: int, lr: Vector, epoch: Vector, initial: bool) -> Vector:
        return self._phased(epoch, rate=True)

    def _momenta(self, place: int, epoch: Vector) -> Vector | None:
        return self._phased(epoch, rate=False) if self.cycle_momentum else None
