# SPDX-License-Identifier: MIT
"""Schedule that lowers the learning rate of a model whose metric stops improving."""

from __future__ import annotations

import math
from typing import Any

import torch

from ...errors import InvalidArgument
from ._base import Formula, Vector, require

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
