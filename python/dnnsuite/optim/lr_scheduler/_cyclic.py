# SPDX-License-Identifier: MIT
"""Schedules that cycle the learning rate, and the momentum against it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ...errors import InvalidArgument
from .._values import as_vector
from ._base import LRScheduler, Vector, momentum_name, require


class _Cycling(LRScheduler):
    """Momentum goes from `max_momentum` to `base_momentum` and back while the rate does the opposite."""

    cycle_momentum: bool
    base_momentum: Vector
    max_momentum: Vector

    def _start_momentum(self, cycle_momentum: bool, base: Any, most: Any, last_epoch: Any) -> None:
        self.cycle_momentum = cycle_momentum
        self._set(base_momentum=base, max_momentum=most)
        for group in self.optimizer.param_groups if cycle_momentum else ():
            self._start(group, momentum_name(group), self.max_momentum, last_epoch)

    def _start(self, group: dict[str, Any], name: str, values: Vector, last_epoch: Any) -> None:
        """Write the values of the models that begin anew."""
        held = group.get(name, values)
        group[name] = torch.where(self._starts(last_epoch), values, held.cpu()).to(held.device)


class CyclicLR(_Cycling):
    """`torch.optim.lr_scheduler.CyclicLR` for B models (Smith, 2017): numbers are one per model, for all groups."""

    per_model = ("base_lr", "max_lr", "step_size_up", "step_size_down", "gamma", "base_momentum", "max_momentum")

    def __init__(
        self,
        optimizer: Any,
        base_lr: Any,
        max_lr: Any,
        step_size_up: Any = 2000,
        step_size_down: Any = None,
        mode: str = "triangular",
        gamma: Any = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: Any = 0.8,
        max_momentum: Any = 0.9,
        last_epoch: Any = -1,
    ) -> None:
        self._attach(optimizer)
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise InvalidArgument(
                f"mode is {mode!r}; it must be triangular, triangular2 or exp_range, or give scale_fn"
            )
        self.base_lr: Vector
        self.max_lr: Vector
        self.step_size_up: Vector
        self.step_size_down: Vector
        self.gamma: Vector
        down = step_size_up if step_size_down is None else step_size_down
        self._set(base_lr=base_lr, max_lr=max_lr, step_size_up=step_size_up, step_size_down=down, gamma=gamma)
        self.mode, self.scale_fn = mode, scale_fn
        self.scale_mode = scale_mode if scale_fn else ("iterations" if mode == "exp_range" else "cycle")
        self._start_momentum(cycle_momentum, base_momentum, max_momentum, last_epoch)
        for group in optimizer.param_groups:
            self._start(group, "lr", self.base_lr, last_epoch)
        super().__init__(optimizer, last_epoch)

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
    max_lr: Vector
    total_steps: Vector
    pct_start: Vector
    div_factor: Vector
    final_div_factor: Vector

    def __init__(
        self,
        optimizer: Any,
        max_lr: Any,
        total_steps: Any = None,
        epochs: Any = None,
        steps_per_epoch: Any = None,
        pct_start: Any = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: Any = 0.85,
        max_momentum: Any = 0.95,
        div_factor: Any = 25.0,
        final_div_factor: Any = 1e4,
        three_phase: bool = False,
        last_epoch: Any = -1,
    ) -> None:
        self._attach(optimizer)
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise InvalidArgument("give total_steps, or epochs and steps_per_epoch")
            total_steps = as_vector(epochs, self.B, "epochs") * as_vector(steps_per_epoch, self.B, "steps_per_epoch")
        if anneal_strategy not in ("cos", "linear"):
            raise InvalidArgument(f"anneal_strategy is {anneal_strategy!r}; it must be cos or linear")
        self._set(max_lr=max_lr, total_steps=total_steps, pct_start=pct_start)
        self._set(div_factor=div_factor, final_div_factor=final_div_factor)
        total, part = self.total_steps, self.pct_start
        require((total >= 1) & (total % 1 == 0), "total_steps", total, "it counts steps, 1 or more")
        require((part >= 0) & (part <= 1), "pct_start", part, "it must lie in [0, 1]")
        self.anneal_strategy, self.three_phase = anneal_strategy, three_phase
        self._start_momentum(cycle_momentum, base_momentum, max_momentum, last_epoch)
        for group in optimizer.param_groups:
            if bool(self._starts(last_epoch).all()) or "initial_lr" in group:  # else the base refuses
                self._start(group, "initial_lr", self.max_lr / self.div_factor, last_epoch)
        super().__init__(optimizer, last_epoch)

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
