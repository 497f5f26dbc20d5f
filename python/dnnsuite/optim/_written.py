# SPDX-License-Identifier: MIT
"""Base of optimizers whose formula is written with torch's operators, each for all models at once.

The operator of `ops.optimizer` reads every number once, but knows formulas of single numbers only. What computes norms,
rows and columns, or products of each model's matrices is written here: with vectors `[B]` broadcast, and without
reading a value, so that a StepRunner records it. State begins as zeros; what begins as a copy of the parameter is that
where the model's `step` is 0, so a fresh model needs no care.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..errors import InvalidArgument
from ..ops import array_layers
from ..ops.array_layers import partly_used, users_of
from ..ops.shared import Maybe, beside
from ._base import ArrayOptimizer
from ._group import Group
from ._plan import Hyper, Tensors, refuse_other_width, refuse_sparse

_HALVES = (torch.bfloat16, torch.float16)


def norm(tensor: Tensor) -> Tensor:
    """Compute each model's norm `[B, 1, ...]`."""
    dims = tuple(range(1, tensor.dim()))
    return torch.linalg.vector_norm(tensor, dim=dims, keepdim=True) if dims else tensor.abs()


class Entry:
    """Parameter, gradient and state in a step, in the dtype to compute in: float32 for 16 bits."""

    def __init__(
        self, parameter: Tensor, row: Group, hyper: Hyper, factor: Tensor | None, active: Tensor, maximize: bool
    ) -> None:
        assert parameter.grad is not None
        self.parameter, self.row, self._hyper = parameter, row, hyper
        self.dtype = torch.float32 if parameter.dtype in _HALVES else parameter.dtype
        self.value, self.active = parameter.detach().to(self.dtype), active
        self.step = row["step"] + 1
        grad = parameter.grad.to(self.dtype)
        grad = grad if factor is None else grad * self.spread(factor)
        self.grad = -grad if maximize else grad

    def __getitem__(self, name: str) -> Tensor:
        """A state by name."""
        return self.row[name].to(self.dtype)

    def spread(self, vector: Tensor) -> Tensor:
        """View `[B]` beside the parameter: `[B, 1, ...]`."""
        return beside(vector.to(self.dtype), self.value)

    def hyper(self, *names: str) -> list[Tensor]:
        """Hyper-parameters `[B, 1, ...]`."""
        return [self.spread(self._hyper[name]) for name in names]

    def started(self, name: str) -> Tensor:
        """A state that is the parameter before the first step."""
        return torch.where(self.spread(self.step) == 1, self.value, self[name])

    def write(self, value: Tensor | None = None, where: Tensor | None = None, **states: Tensor) -> None:
        """Write parameter and states of the models that step, or of those in `where` `[B]`."""
        active = self.active if where is None else where
        named = [(self.parameter, value)] if value is not None else []
        for target, new in [*named, *((self.row[name], new) for name, new in states.items())]:
            target.copy_(torch.where(beside(active, target), new, target))

    def count(self) -> None:
        """Count a step of the models that step."""
        self.row["step"].add_(self.active)


class WrittenOptimizer(ArrayOptimizer):
    """Base of optimizers that give the new values of a parameter by `formula`."""

    states: ClassVar[tuple[str, ...]] = ()
    by_sizes: ClassVar[bool] = False
    """True if a step depends on the sizes of a parameter, and not on its numbers alone."""

    def _check_group(self, group: Group) -> None:
        super()._check_group(group)
        padded = array_layers.padded() if self.by_sizes else set()
        for parameter in group["params"]:
            if id(parameter) in padded:
                raise InvalidArgument(
                    f"{type(self).__name__} computes with the sizes of a parameter, and {list(parameter.shape)} are "
                    "not those of every model: adapters of several ranks. Train models of one rank together"
                )
            if parameter.is_complex():
                raise InvalidArgument(
                    f"{type(self).__name__} takes real parameters; one {list(parameter.shape)} is complex"
                )

    def rule(self, group: Group, hyper: Hyper) -> str:
        return type(self).__name__

    def names_of(self, rule: str, parameter: Tensor) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return self.states, ("step",)

    def entries(
        self, group: Group, params: Sequence[Tensor], state: Any, hyper: Hyper, factor: Tensor | None, active: Tensor
    ) -> Iterator[Entry]:
        """Yield those of `params` that have a gradient; models that did not use one are not active in it."""
        used = [p for p in params if p.grad is not None]
        refuse_sparse([p.grad for p in used if p.grad is not None], used)
        refuse_other_width(used, group["active"])
        self.fill_state("", group, used, state, hyper)
        apart = {id(p) for p in partly_used(used)}
        for p in used:
            own = active & users_of(p.grad) if id(p) in apart and p.grad is not None else active
            yield Entry(p, state[p], hyper, factor, own, bool(group.get("maximize", False)))

    def update(
        self, group: Group, params: Tensors, state: Any, hyper: Hyper, factor: Maybe = None, active: Maybe = None
    ) -> None:
        active = group["active"] if active is None else active
        hyper = self.begin(group, hyper, active)
        self.formulas(list(self.entries(group, params, state, hyper, factor, active)), group)

    def begin(self, group: Group, hyper: Hyper, active: Tensor) -> Hyper:
        """Count a group's step; return the vectors that its formulas use."""
        return hyper

    def formulas(self, entries: Sequence[Entry], group: Group) -> None:
        """Write all parameters of a group."""
        for entry in entries:
            entry.write(**self.formula(entry, group))
            entry.count()

    def formula(self, entry: Entry, group: Group) -> dict[str, Tensor]:
        """Compute a parameter's new value, as "value", and its states."""
        raise TypeError(f"{type(self).__name__} has no formula")
