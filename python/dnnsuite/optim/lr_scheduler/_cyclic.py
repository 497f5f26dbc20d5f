# SPDX-License-Identifier: MIT
"""Schedules that cycle the learning rate, and the momentum against it."""

from __future__ import annotations

import math
from typing import Any

import torch

from ...errors import InvalidArgument
from .._values import as_vector
from ._base import Formula, Vector, momentum_name, require


class _Cycling(Formula):
    """Momentum goes from `max_momentum` to `base_momentum` and back while the rate does the opposite."""

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

    per_model = ("base_lr", "max_lr", "step_size_up", "step_size_down", "gamma", "base_momentum", "max_momentum")

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

    per_model = (
        "max_lr",
        "total_steps",
        "pct_start",
        "div_factor",
        "final_div_factor",
        "base_momentum",
        "max_momentum",
    )
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
