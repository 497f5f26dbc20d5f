# SPDX-License-Identifier: MIT
"""Base of the schedules: an epoch per model, and learning rates written out of place."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, ClassVar

import torch

from ...errors import InvalidArgument
from .._base import ArrayOptimizer
from .._partial import PartiallyFused
from .._values import as_vector, check_indices, fill_fresh, fresh_values, pick

Vector = torch.Tensor


_TORCHS: Any = torch.optim.lr_scheduler.LRScheduler  # whose attributes are one model's


class LRScheduler(_TORCHS):
    """Base of the schedules. `last_epoch` is an int64 `[B]`: models that joined later are at their own epoch. As an
    argument it is one number, or one per model. Code that looks for torch's schedules recognises it: accelerate steps
    it with the optimizer, and not in each part of an accumulation.

    A schedule gives each group's learning rates float64 `[B]` by `rates`, from those of the epoch before where torch
    does so, such that schedules can be combined.
    """

    per_model: ClassVar[tuple[str, ...]] = ()
    """The arguments with a value per model, kept as float64 `[B]` on the CPU."""

    def __init__(self, optimizer: Any, last_epoch: Any = -1) -> None:
        self._attach(optimizer)
        self.last_epoch = as_vector(last_epoch, self.B, "last_epoch").long()
        for place, group in enumerate(optimizer.param_groups):
            if bool(self._starts(last_epoch).all()):
                group.setdefault("initial_lr", group["lr"].clone())
            elif "initial_lr" not in group:
                raise InvalidArgument(
                    f"group {place} has no initial_lr, so last_epoch={last_epoch} cannot continue: load the "
                    "optimizer's state first, or leave last_epoch out"
                )
        self.base_lrs: list[Vector] = [group["initial_lr"].cpu().clone() for group in optimizer.param_groups]
        self._move(self._all(), initial=True)

    def _attach(self, optimizer: Any) -> None:
        if not isinstance(optimizer, (ArrayOptimizer, PartiallyFused)):
            raise InvalidArgument(
                f"a schedule of dnnsuite.optim drives an optimizer of dnnsuite.optim, got {type(optimizer).__name__}; "
                "for a torch optimizer use torch.optim.lr_scheduler"
            )
        self.optimizer = optimizer
        self._step_count = 1  # as torch counts, its first step by the constructor

    @property
    def B(self) -> int:
        """The number of models."""
        return self.optimizer.B

    def _set(self, **values: Any) -> None:
        """Keep arguments as vectors."""
        B = getattr(self.optimizer, "B", 0)
        for name, value in values.items():
            setattr(self, name, as_vector(value, B, name))

    def _starts(self, last_epoch: Any) -> Vector:
        """Return the models that start from scratch instead of continuing from an epoch."""
        return as_vector(last_epoch, self.B, "last_epoch") == -1

    def _all(self) -> Vector:
        return torch.ones(self.B, dtype=torch.bool)

    def rates(self, place: int, lr: Vector, epoch: Vector, initial: bool) -> Vector:
        """Group `place`'s rates on entering `epoch` from `lr`; `initial`: it is where the schedule begins."""
        raise TypeError(f"{type(self).__name__} gives no rates")

    def closed_form(self, place: int, epoch: Vector) -> Vector | None:
        """Return the rates at `epoch` whatever came before; None where torch has no closed form."""
        return None

    def _advance(self, moving: Vector) -> None:
        """Update state other than the epoch, for the models that move on."""

    def _momenta(self, place: int, epoch: Vector) -> Vector | None:
        """Group `place`'s momenta at `epoch`, for schedules that cycle them."""
        return None

    def advance(self, models: Sequence[int]) -> None:
        """Let these models alone enter their next epoch."""
        moving = ~self._all()
        moving[list(models)] = True
        self._move(moving)

    def step(self, epoch: Any = None) -> None:
        """Enter the next epoch. Call it after the optimizer's last step of the epoch.

        `epoch`, a number or one per model, enters that epoch instead: by the closed form where torch has one.

        Raises:
            InvalidArgument: the optimizer has more or fewer models than the schedule, or `epoch` is not a whole number.
        """
        self._check_width()
        self._step_count += 1
        if epoch is None:
            self._move(self._all())
            return
        chosen = as_vector(epoch, self.B, "epoch")
        if not bool(((chosen >= 0) & (chosen % 1 == 0)).all()):
            raise InvalidArgument(f"epoch must be a whole number, 0 or more; got {chosen.tolist()}")
        self.last_epoch = chosen.long()
        self._jump(chosen)
        for place, group in enumerate(self.optimizer.param_groups):
            new = self.closed_form(place, chosen)
            _write(group, "lr", self.rates(place, group["lr"].cpu(), chosen, False) if new is None else new)
            momenta = self._momenta(place, chosen)
            if momenta is not None:
                _write(group, momentum_name(group), momenta)

    def _check_width(self) -> None:
        """Refuse a step after an edit of the array that this schedule has not followed."""
        if len(self.last_epoch) != self.B:
            raise InvalidArgument(
                f"{type(self).__name__} has {len(self.last_epoch)} models and its optimizer {self.B}: pass both to the "
                "edit of the array, as in array.drop(1, optimizer, scheduler), or call scheduler.select with the "
                "models that are left"
            )

    def _jump(self, epoch: Vector) -> None:
        """State beside the epoch, on entering one out of order."""

    def _move(self, moving: Vector, initial: bool = False, restart: bool = False) -> None:
        """The models `moving` enter their next epoch, or epoch 0 by `restart`; the others stay as they are."""
        following = torch.zeros_like(self.last_epoch) if restart else self.last_epoch + 1
        self.last_epoch = torch.where(moving, following, self.last_epoch)
        if not initial and not restart:
            self._advance(moving)
        epoch = self.last_epoch.double()
        for place, group in enumerate(self.optimizer.param_groups):
            lr = group["lr"].cpu()
            new = self.closed_form(place, epoch) if restart else None
            if new is None:
                new = self.rates(place, lr, epoch, initial)
            _write(group, "lr", torch.where(moving, new, lr))
            momenta = self._momenta(place, epoch)
            if momenta is not None:
                name = momentum_name(group)
                _write(group, name, torch.where(moving, momenta, group[name].cpu()))

    def get_last_lr(self) -> list[Vector]:
        """Each group's learning rates now, float64 `[B]`."""
        return [group["lr"].clone() for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Return the state, without optimizer and functions."""
        return {n: v for n, v in self.__dict__.items() if n != "optimizer" and not _has_function(v)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a result of `state_dict`."""
        sizes = state_dict.get("last_epoch")
        if isinstance(sizes, torch.Tensor) and sizes.shape != (self.B,):
            raise InvalidArgument(f"the state is that of {len(sizes)} models, the optimizer has {self.B}")
        for name, value in state_dict.items():
            setattr(self, name, _copied(value))

    def select(self, indices: Sequence[int | None], **fresh: Any) -> None:
        """Follow `ArrayOptimizer.select`, after it: slot k continues as model `indices[k]` did.

        A new model (None) begins the schedule with its learning rate in the optimizer; `fresh` holds its arguments,
        each one number or one per new model.
        """
        chosen = check_indices(indices, len(self.last_epoch))
        if len(chosen) != self.B:
            raise InvalidArgument(f"{len(chosen)} indices, but the optimizer has {self.B} models: change it first")
        values = self._fresh_arguments(chosen.count(None), fresh)
        new = torch.tensor([index is None for index in chosen])
        for name, value in self.__dict__.items():
            if isinstance(value, torch.Tensor):
                setattr(self, name, fill_fresh(pick(value, chosen), chosen, values.get(name, [0] * int(new.sum()))))
            elif isinstance(value, list) and value and isinstance(value[0], torch.Tensor):
                setattr(self, name, [pick(vector, chosen) for vector in value])
        self._selected()
        if bool(new.any()):
            self._begin(new)

    def _selected(self) -> None:
        """Restart state beside vectors, before fresh models begin."""

    def _fresh_arguments(self, count: int, fresh: dict[str, Any]) -> dict[str, list[float]]:
        unknown = sorted(set(fresh) - set(self.per_model))
        missing = []
        for name in sorted(set(self.per_model) - set(fresh)):
            values = {float(value) for value in self.__dict__.get(name, [])}
            if len(values) == 1:  # what all models have, a new one has too
                fresh = {**fresh, name: values.pop()}
            else:
                missing.append(name)
        if unknown or (count and missing):
            what = f"has no argument {', '.join(unknown)}" if unknown else f"needs {', '.join(missing)}"
            raise InvalidArgument(f"a fresh model of {type(self).__name__} {what}")
        return {name: fresh_values(name, value, count) for name, value in fresh.items()} if count else {}

    def _begin(self, new: Vector) -> None:
        """The models `new` begin at epoch 0 with the rates that the optimizer has."""
        self.last_epoch[new] = -1
        for base, group in zip(self.base_lrs, self.optimizer.param_groups, strict=True):
            base[new] = group["initial_lr"].cpu()[new]
        self._move(new, initial=True)


class Formula(LRScheduler):
    """Schedule with the arguments of torch's class of its name, of which those `per_model` are numbers of each model;
    `counts` are whole numbers, 1 or more."""

    counts: ClassVar[tuple[str, ...]] = ()
    _torchs: ClassVar[inspect.Signature]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        torchs = getattr(torch.optim.lr_scheduler, cls.__name__, None)
        if cls.__module__.startswith(__package__) and torchs is not None:
            cls._torchs = cls.__signature__ = inspect.signature(torchs)
        elif "__init__" in cls.__dict__:
            shown = inspect.signature(cls.__init__)
            cls.__signature__ = shown.replace(parameters=list(shown.parameters.values())[1:])

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        bound = self._torchs.bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        self._attach(given.pop("optimizer"))
        self._take(given)
        self._set(**{name: given[name] for name in self.per_model})
        for name in self.counts:
            vector: Vector = getattr(self, name)
            require((vector >= 1) & (vector % 1 == 0), name, vector, "it must be a whole number, 1 or more")
        self._check(given.get("last_epoch", -1))
        if "last_epoch" in given:
            super().__init__(self.optimizer, given["last_epoch"])

    def _take(self, given: dict[str, Any]) -> None:
        """Take what is no number of each model, and complete `given`."""

    def _check(self, last_epoch: Any) -> None:
        """Refuse numbers that make no schedule, and begin what the numbers say."""


def momentum_name(group: dict[str, Any]) -> str:
    """Return the name of the group's momentum."""
    for name in ("beta1", "momentum"):
        if name in group:
            return name
    raise InvalidArgument("the optimizer has neither momentum nor beta1 to cycle: pass cycle_momentum=False")


def _write(group: dict[str, Any], name: str, values: Vector) -> None:
    # Out of place: a step of a StepRunner that is still under way keeps the values it was given.
    group[name] = values.to(group[name].device)


def _has_function(value: Any) -> bool:
    return callable(value) or (isinstance(value, (list, tuple)) and any(map(_has_function, value)))


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.clone()
    return [_copied(v) for v in value] if isinstance(value, list) else value


def require(condition: Vector, name: str, vector: Vector, what: str) -> None:
    """Refuse values that do not fulfil the condition; the message names the first such model's."""
    if not bool(condition.all()):
        index = int((~condition).nonzero()[0])
        raise InvalidArgument(f"{name} of model {index} is {float(vector[index]):g}; {what}")
