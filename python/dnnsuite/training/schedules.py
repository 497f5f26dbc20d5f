# SPDX-License-Identifier: MIT
"""Learning-rate schedules of whole runs: SC20's warm-up and plateau, TBD's two, and any of torch's.

All parameter groups follow; each keeps its own ratio to the first. A schedule keeps the optimizer and reads its groups
each time: `Optimizer.load_state_dict` makes new ones.
"""

from __future__ import annotations

from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau


class Schedule:
    """Base of schedules, which set the learning rates of an optimizer during a run. Epochs and steps count from 0.

    Args:
        optimizer: optimizer whose groups have the learning rates after warm-up, the peaks.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._peaks = [group["lr"] for group in optimizer.param_groups]

    def begin_epoch(self, epoch: int) -> None:
        """Set the rates of an epoch; called before its first step."""

    def begin_step(self, step: int) -> None:
        """Set the rates of a step, counted over the whole run; called before it."""

    def end_epoch(self, epoch: int, valid_loss: float) -> None:
        """Take the validation loss of an epoch; called after it."""

    def state_dict(self) -> dict[str, Any]:
        """Return the numbers and texts that :meth:`load_state_dict` takes."""
        return {"peaks": self._peaks}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state`; the learning rates are in the optimizer's own state."""
        self._peaks = list(state["peaks"])

    def _set(self, factor: float) -> None:
        """Give each group this part of its peak."""
        for group, peak in zip(self._optimizer.param_groups, self._peaks, strict=True):
            group["lr"] = peak * factor


class WarmupPlateau(Schedule):
    """SC20's schedule: lr·(e+1)/warmup_epochs in epoch e of the warm-up; later epochs follow the validation loss.

    Args:
        optimizer: optimizer whose groups have the learning rates after warm-up.
        warmup_epochs: number of epochs of warm-up; 0 for none.
        factor, patience: arguments of torch's ReduceLROnPlateau, which gets the losses from epoch `warmup_epochs` on.
    """

    def __init__(self, optimizer: Optimizer, warmup_epochs: int = 0, factor: float = 0.2, patience: int = 10) -> None:
        super().__init__(optimizer)
        self._warmup = warmup_epochs
        self._plateau = ReduceLROnPlateau(optimizer, mode="min", factor=factor, patience=patience)

    def begin_epoch(self, epoch: int) -> None:
        if epoch < self._warmup:
            for group, peak in zip(self._optimizer.param_groups, self._peaks, strict=True):
                group["lr"] = peak * (epoch + 1) / self._warmup

    def end_epoch(self, epoch: int, valid_loss: float) -> None:
        if epoch >= self._warmup:
            self._plateau.step(valid_loss)

    def state_dict(self) -> dict[str, Any]:
        return {"plateau": self._plateau.state_dict(), **super().state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._plateau.load_state_dict(state["plateau"])
        super().load_state_dict(state)


class SteppedWarmup(Schedule):
    """A learning rate with a factor for each range of epochs, after a linear warm-up over steps.

    Args:
        optimizer: optimizer whose groups have the learning rates after warm-up.
        steps_per_epoch: number of steps in an epoch.
        boundaries: ((epoch, factor), …) in order; from that epoch on, the learning rate is factor·peak.
        warmup_epochs: number of epochs of warm-up, 0 for none. Step s of its n steps has the learning rate peak·s/n.
        late: True if a factor begins one step after its epoch, as in TBD's TensorFlow version.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        steps_per_epoch: int,
        boundaries: tuple[tuple[int, float], ...],
        warmup_epochs: int = 0,
        late: bool = False,
    ) -> None:
        super().__init__(optimizer)
        self._boundaries, self._steps_per_epoch, self._late = boundaries, steps_per_epoch, int(late)
        self._warmup_steps = warmup_epochs * steps_per_epoch

    def factor(self, step: int) -> float:
        """Return the fraction of the peak learning rate at a step, counted from 0."""
        if step < self._warmup_steps:
            return step / self._warmup_steps
        found = 1.0
        for epoch, factor in self._boundaries:
            if step >= epoch * self._steps_per_epoch + (self._late if epoch else 0):
                found = factor
        return found

    def begin_step(self, step: int) -> None:
        self._set(self.factor(step))


def tbd_pytorch(optimizer: Optimizer, steps_per_epoch: int) -> SteppedWarmup:
    """TBD's PyTorch version: a tenth after 30, 60 and 80 epochs. The peak is 0.1·batch/256."""
    return SteppedWarmup(optimizer, steps_per_epoch, ((30, 0.1), (60, 0.01), (80, 0.001), (90, 0.0001)))


def tbd_tf2(optimizer: Optimizer, steps_per_epoch: int) -> SteppedWarmup:
    """TBD's TensorFlow version: warm-up over five epochs, then as the other. The peak is 0.1·batch/256."""
    steps = ((0, 1.0), (30, 0.1), (60, 0.01), (80, 0.001))
    return SteppedWarmup(optimizer, steps_per_epoch, steps, warmup_epochs=5, late=True)


class PerEpoch(Schedule):
    """A torch scheduler that is stepped once per epoch. ReduceLROnPlateau gets the validation loss."""

    def __init__(self, scheduler: LRScheduler) -> None:
        self._scheduler = scheduler

    def end_epoch(self, epoch: int, valid_loss: float) -> None:
        if isinstance(self._scheduler, ReduceLROnPlateau):
            self._scheduler.step(valid_loss)
        else:
            self._scheduler.step()

    def state_dict(self) -> dict[str, Any]:
        return self._scheduler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._scheduler.load_state_dict(state)
