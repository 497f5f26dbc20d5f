# SPDX-License-Identifier: MIT
"""Schedules of a fixed shape, in torch's formulas."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ...errors import InvalidArgument
from .._values import as_vector, check_indices
from ._base import Formula, Vector, require


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
