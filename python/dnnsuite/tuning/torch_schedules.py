# SPDX-License-Identifier: MIT
"""Schedules of torch's, one per model, that drive the optimizer of an array: any class, a user's own too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch


class TorchSchedules:
    """Schedules of models in their slots; a step of each moves its model's hyper-parameters in the array's optimizer.

    Args:
        optimizer: optimizer of the array.
        schedules: schedules of torch's, each with the optimizer of its model, whose parameters are let go.
    """

    def __init__(self, optimizer: Any, schedules: Sequence[Any]) -> None:
        self._optimizer = optimizer
        self._held: list[Any] = [_without_parameters(schedule) for schedule in schedules]

    @property
    def kinds(self) -> set[str]:
        """Names of the schedules' classes."""
        return {type(schedule).__name__ for schedule in self._held}

    def of(self, slot: int) -> Any:
        """The schedule of torch's in a slot."""
        return self._held[slot]

    def advance(self, models: Sequence[int]) -> None:
        """Let the schedules of these models alone end an epoch, or a batch."""
        for slot, schedule in enumerate(self._held):
            self._lend(slot, schedule)
            if slot in models:
                schedule.step()
        self._take()

    def step(self, metrics: Sequence[float] | None = None) -> None:
        """End an epoch, or a batch; `metrics` are the models', for schedules that follow one."""
        for slot, schedule in enumerate(self._held):
            self._lend(slot, schedule)
            if metrics is not None and follows_metric(schedule):
                schedule.step(metrics[slot])
            else:
                schedule.step()
        self._take()

    def _lend(self, slot: int, schedule: Any) -> None:
        """Write the hyper-parameters of the slot into torch's groups: a schedule continues from them."""
        for own, torchs in zip(self._optimizer.param_groups, schedule.optimizer.param_groups, strict=True):
            for name in group_values(torchs):
                if isinstance(own.get(name), torch.Tensor):
                    _set(torchs, name, float(own[name][slot]))

    def _take(self) -> None:
        """Write torch's hyper-parameters into the array's groups."""
        for place, own in enumerate(self._optimizer.param_groups):
            rows = [group_values(schedule.optimizer.param_groups[place]) for schedule in self._held]
            for name in rows[0]:
                held = own.get(name)
                if isinstance(held, torch.Tensor):  # out of place: steps under way keep the values they were given
                    own[name] = torch.tensor([row[name] for row in rows], dtype=held.dtype, device=held.device)

    def select(self, slots: Sequence[int | None]) -> None:
        """Follow an edit of the array; the schedule of a new model is to be :meth:`put`."""
        self._held = [None if slot is None else self._held[slot] for slot in slots]

    def put(self, slot: int, schedule: Any) -> None:
        """Let a new model's schedule begin."""
        self._held[slot] = _without_parameters(schedule)

    def state_of(self, slot: int) -> dict[str, Any]:
        """Copy the state of a slot's schedule, without functions."""
        schedule = self._held[slot]
        marks = [{name: value for name, value in group.items() if name != "params"}
                 for group in schedule.optimizer.param_groups]  # fmt: skip
        return {"schedule": _plain(schedule.state_dict()), "groups": _plain(marks)}

    def load(self, slot: int, state: Mapping[str, Any]) -> None:
        """Let a slot's schedule continue from a state."""
        schedule = self._held[slot]
        schedule.load_state_dict(state["schedule"])
        for group, marks in zip(schedule.optimizer.param_groups, state["groups"], strict=True):
            group.update(marks)


def follows_metric(schedule: Any) -> bool:
    """True for ReduceLROnPlateau, torch's or `dnnsuite.optim`'s."""
    return any(kind.__name__ == "ReduceLROnPlateau" for kind in type(schedule).__mro__)


def group_values(group: Mapping[str, Any]) -> dict[str, float]:
    """Collect the numbers of a torch optimizer's group, with pairs split."""
    found: dict[str, float] = {}
    for name, value in group.items():
        if name == "betas":
            found |= {"beta1": value[0], "beta2": value[1]}
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            found[name] = value
    return found


def _set(group: dict[str, Any], name: str, value: float) -> None:
    if name in ("beta1", "beta2"):
        first, second = group["betas"]
        group["betas"] = (value, second) if name == "beta1" else (first, value)
    else:
        group[name] = value


@contextmanager
def without_marks(optimizers: Sequence[torch.optim.Optimizer]) -> Iterator[None]:
    """Take out of the groups inside what schedules have noted there (`initial_lr`, `max_lr`), and put it back."""
    with ExitStack() as after:
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                marks = {name: group.pop(name) for name in set(group) - set(optimizer.defaults) - {"params"}}
                after.callback(group.update, marks)
        yield


def _without_parameters(schedule: Any) -> Any:
    """Return the same schedule, whose optimizer holds no model any more, and has made a step, as torch wants to see."""
    for group in schedule.optimizer.param_groups:
        group["params"] = []
    schedule.optimizer.step()
    return schedule


def _plain(value: Any) -> Any:
    """Return a copy that a file of weights keeps: no functions, no classes."""
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items() if not callable(part)}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value if not callable(part)]
    return value.item() if isinstance(value, torch.Tensor) and value.numel() == 1 else value
