# SPDX-License-Identifier: MIT
"""State of one model in an array: read out of its slot, and put into another.

It holds weights and buffers, the rows of the optimizer's state and hyper-parameters, the schedule's, and the random
streams; on the CPU, as a file keeps them. Schedules of torch's, one per model, drive the optimizer of an array: any
class, a user's own too.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch

from .. import nn
from .._saved import load_tensors
from ..errors import Error, reason


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


State = dict[str, Any]


def load_state(path: Path) -> Any:
    """Read the state of a trial from its file.

    Raises:
        Error: it is missing or damaged; the message names it.
    """
    try:
        return load_tensors(path)
    except Exception as error:
        raise Error(
            f"{path} cannot be read as a trial's state: {reason(error)}; remove the file, and the trial trains again"
        ) from error


def _copied(value: torch.Tensor) -> torch.Tensor:
    return value.detach().to("cpu", copy=True)


def read_slot(slot: int, array: Any, optimizer: Any, schedule: Any, without: Container[str] = ()) -> State:
    """Copy the state of the model in `slot`, but for the tensors `without`, by name."""
    held = {name: value for name, value in array.model_state_dict(slot).items() if name not in without}
    return {
        "model": {name: _copied(v) if isinstance(v, torch.Tensor) else v for name, v in held.items()},
        "optimizer": [
            {name: _copied(row[slot]) for name, row in optimizer.state[p].items() if isinstance(row, torch.Tensor)}
            if p in optimizer.state
            else {}
            for p in _parameters(optimizer)
        ],
        "groups": [
            {name: _copied(v[slot]) for name, v in _vectors(group, array.B)} for group in optimizer.param_groups
        ],
        "schedule": [_read_schedule(one, slot) for one in _schedules(schedule)],
        "streams": {name: _copied(rng[slot]) for name, rng in nn.get_rng_state(array).items()},
    }


@torch.no_grad()
def write_slot(state: State, slot: int, array: Any, optimizer: Any) -> None:
    """Put the optimizer's state and the random streams into `slot`, whose model has its weights already."""
    trained = {id(p) for p, own in zip(_parameters(optimizer), state["optimizer"], strict=True) if own}
    for group in optimizer.param_groups if trained else ():  # what is frozen, as a base, has no state
        optimizer.init_state(group, [p for p in group["params"] if id(p) in trained], optimizer.state)
    for parameter, own in zip(_parameters(optimizer), state["optimizer"], strict=True):
        for name, value in own.items():
            if name in optimizer.state[parameter]:  # a momentum is in no step of an array without any
                row = optimizer.state[parameter][name][slot]
                common = [min(sizes) for sizes in zip(row.shape, value.shape, strict=True)]  # ranks are padded
                corner(row.zero_(), common).copy_(corner(value, common))
    streams = nn.get_rng_state(array)
    for name, value in state["streams"].items():
        streams[name][slot] = value.to(streams[name].device)
    nn.set_rng_state(array, streams)


@torch.no_grad()
def write_values(state: State, slot: int, optimizer: Any, schedule: Any) -> None:
    """Put hyper-parameters and the schedule's state into `slot`."""
    for group, own in zip(optimizer.param_groups, state["groups"], strict=True):
        for name, value in own.items():
            _put(group, name, slot, value)
    for one, own in zip(_schedules(schedule), state["schedule"], strict=True):
        _write_schedule(one, slot, own)


def _put(group: Any, name: str, slot: int, value: Any) -> None:
    """Write one model's value out of place: steps under way keep the values they were given."""
    vector = group[name].clone()
    vector[slot] = value
    group[name] = vector


def corner(tensor: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """View the part of a tensor that a smaller one has in a padded array."""
    return tensor[tuple(map(slice, shape))] if len(shape) else tensor


def rates_of(slot: int, optimizer: Any) -> list[float]:
    """Learning rates of the optimizer's groups in `slot`."""
    return [float(group["lr"][slot]) for group in optimizer.param_groups]


def follows(schedule: Any, slot: int) -> bool:
    """True if the schedule of the model in `slot` follows a metric."""
    return follows_metric(schedule.of(slot) if isinstance(schedule, TorchSchedules) else schedule)


def advance(schedule: Any, slot: int, moves: int) -> None:
    """Let the schedule of one model move so often, as if it had been there from the beginning."""
    for _ in range(moves):
        schedule.advance([slot])


def _heard(own: State) -> State:
    """State of a schedule that follows a metric, without its arguments."""
    names = ("best", "num_bad_epochs", "cooldown_counter", "last_epoch")
    return {name: own[name] for name in names if name in own}


@torch.no_grad()
def write_metric_schedule(state: Mapping[str, Any], slot: int, optimizer: Any, schedule: Any) -> None:
    """Put the state of another model's schedule that follows a metric into `slot`: the rates are the share of the
    model's own that the other had left of its own."""
    for one, own in zip(_schedules(schedule), state["schedule"], strict=True):
        if isinstance(one, TorchSchedules):
            vars(one.of(slot)).update(_heard(own["schedule"]))
        else:
            _write_schedule(one, slot, _heard(own))
    own_rates = rates_of(slot, optimizer)
    for group, theirs, begun, own in zip(
        optimizer.param_groups, state["groups"], state["begun"], own_rates, strict=True
    ):
        _put(group, "lr", slot, own * float(theirs["lr"]) / begun if begun else own)


def _parameters(optimizer: Any) -> list[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _vectors(group: Any, B: int) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the values of a group that are one per model."""
    for name, value in group.items():
        if isinstance(value, torch.Tensor) and value.dim() == 1 and len(value) == B:
            yield name, value


def _schedules(schedule: Any) -> Iterator[Any]:
    """Yield a schedule and those that it consists of."""
    if schedule is None:
        return
    yield schedule
    for part in getattr(schedule, "_schedulers", ()):
        yield from _schedules(part)


def _read_schedule(schedule: Any, slot: int) -> State:
    if isinstance(schedule, TorchSchedules):
        return schedule.state_of(slot)
    found: State = {}
    for name, value in vars(schedule).items():
        if isinstance(value, torch.Tensor):
            found[name] = _copied(value[slot])
        elif isinstance(value, list) and value and isinstance(value[0], torch.Tensor):
            found[name] = [_copied(vector[slot]) for vector in value]
    return found


def _write_schedule(schedule: Any, slot: int, own: State) -> None:
    if isinstance(schedule, TorchSchedules):
        schedule.load(slot, own)
        return
    for name, value in own.items():
        held = getattr(schedule, name)
        if isinstance(value, list):
            setattr(schedule, name, [_with(vector, slot, one) for vector, one in zip(held, value, strict=True)])
        else:
            setattr(schedule, name, _with(held, slot, value))


def _with(vector: torch.Tensor, slot: int, value: torch.Tensor) -> torch.Tensor:
    """Return a copy of `vector` with another row, as wide as a row of the other needs it."""
    changed = vector.clone()
    if value.dim() and value.shape != vector[slot].shape:  # milestones, filled up with infinity
        width = max(len(value), vector.size(1))
        changed = torch.full((len(vector), width), float("inf"), dtype=vector.dtype)
        changed[:, : vector.size(1)] = vector
        value = torch.cat([value, torch.full((width - len(value),), float("inf"), dtype=vector.dtype)])
    changed[slot] = value
    return changed
