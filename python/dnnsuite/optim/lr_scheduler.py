# SPDX-License-Identifier: MIT
"""Learning-rate schedules with each model's own arguments."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import InvalidArgument
from ._base import ArrayOptimizer
from ._values import as_vector


class ArrayLRScheduler:
    """Base of the schedules: counts epochs and multiplies every group's `lr` `[B]` by each model's factor.

    The factors are chained on what `lr` is now, as torch's `get_lr` does, so schedules can be combined.
    """

    def __init__(self, optimizer: ArrayOptimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, ArrayOptimizer):
            raise InvalidArgument(
                f"a schedule of dnnsuite.optim drives an optimizer of dnnsuite.optim, got {type(optimizer).__name__}; "
                "for a torch optimizer use torch.optim.lr_scheduler"
            )
        self.optimizer = optimizer
        self.last_epoch = last_epoch
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"].clone())
        self.step()

    def factor(self, epoch: int, B: int) -> torch.Tensor:
        """What `lr` is multiplied by on entering `epoch` (from 0 on): float64 `[B]`."""
        raise TypeError(f"{type(self).__name__} gives no factor")

    def step(self) -> None:
        """Enters the next epoch. Call it after the optimizer's last step of the epoch."""
        self.last_epoch += 1
        if self.last_epoch == 0:
            return
        for group in self.optimizer.param_groups:
            # Out of place: a step of a StepRunner that is still under way keeps the values it was given.
            group["lr"] = group["lr"] * self.factor(self.last_epoch, self.optimizer.B).to(group["lr"].device)

    def get_last_lr(self) -> list[torch.Tensor]:
        """Each group's learning rates now, float64 `[B]`."""
        return [group["lr"].clone() for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer."""
        return {name: value for name, value in self.__dict__.items() if name != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Puts back what `state_dict` gave."""
        self.__dict__.update(state_dict)


class StepLR(ArrayLRScheduler):
    """`torch.optim.lr_scheduler.StepLR` for B models: lr ← gamma · lr each `step_size` epochs, per model or for all."""

    def __init__(
        self, optimizer: ArrayOptimizer, step_size: Any, gamma: Any = 0.1, last_epoch: int = -1
    ) -> None:
        B = getattr(optimizer, "B", 0)
        self.step_size, self.gamma = as_vector(step_size, B, "step_size"), as_vector(gamma, B, "gamma")
        if bool((self.step_size < 1).any()) or bool((self.step_size % 1 != 0).any()):
            raise InvalidArgument(f"step_size counts epochs, 1 or more; got {self.step_size.tolist()}")
        super().__init__(optimizer, last_epoch)

    def factor(self, epoch: int, B: int) -> torch.Tensor:
        return torch.where(epoch % self.step_size == 0, self.gamma, 1.0)
