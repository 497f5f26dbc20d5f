# SPDX-License-Identifier: MIT
"""Hyper-parameters and state that a kind of optimizer keeps for each model."""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch

from .. import _under_way as under_way
from .. import ops
from ..errors import InvalidArgument
from ._group import Group, HyperParameter, ParameterGroup
from ._plan import Hyper, StepPlan
from ._values import as_vector

SCALARS = frozenset(name for rule in ops.RULES.values() for name in rule.scalars)
STATES = frozenset(name for rule in ops.RULES.values() for name in rule.states)


class ParameterState(dict[str, Any]):
    """State of one parameter, as torch's dict is; its optimizer hears of every change.

    A scalar such as `step` takes a number or one per model and is float64 `[B]`; a state such as `exp_avg` takes a
    tensor of the parameter's shape. Other names take anything.
    """

    def __init__(self, values: Mapping[str, Any], parameter: torch.Tensor, owner: OptimizerState) -> None:
        super().__init__(values)
        self._parameter, self._owner = parameter, weakref.ref(owner)

    def __setitem__(self, name: str, value: Any) -> None:
        if name == "momentum_buffer" and value is None:  # torch's SGD: the buffer begins anew
            super().pop("step", None)
            self.pop(name, None)
            return
        if name in SCALARS:
            value = self._scalar(name, value)
        elif name in STATES:
            value = self._state(name, value)
        super().__setitem__(name, value)
        self._note()

    def _scalar(self, name: str, value: Any) -> torch.Tensor:
        parameter = self._parameter
        size, device = parameter.size(0), parameter.device
        if isinstance(value, torch.Tensor) and value.dtype == torch.float64 and value.shape == (size,):
            return value.to(device)
        return as_vector(value, size, name, device)

    def _state(self, name: str, value: Any) -> torch.Tensor:
        parameter = self._parameter
        if not isinstance(value, torch.Tensor) or value.shape != parameter.shape:
            given = list(value.shape) if isinstance(value, torch.Tensor) else repr(value)
            raise InvalidArgument(
                f"{name} of a parameter {list(parameter.shape)} is {given}; it must be a tensor of the same shape"
            )
        return value.to(parameter.device, parameter.dtype)

    def update(self, *given: Any, **named: Any) -> None:
        for name, value in dict(*given, **named).items():
            self[name] = value

    def setdefault(self, name: str, default: Any = None) -> Any:
        if name not in self:
            self[name] = default
        return self[name]

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        self._note()

    def pop(self, name: str, *default: Any) -> Any:
        value = super().pop(name, *default)
        self._note()
        return value

    def clear(self) -> None:
        super().clear()
        self._note()

    def _note(self) -> None:
        owner = self._owner()
        if owner is not None:
            owner.note_change()

    def __reduce_ex__(
        self, protocol: Any
    ) -> Any:  # of copies and files: the optimizer makes it its state again
        return dict, (dict(self),)


class StateTable(defaultdict[Any, Any]):
    """State of every parameter, as torch's `optimizer.state` is; `changes` counts rows that came or went."""

    def __init__(self, rows: Mapping[Any, Mapping[str, Any]], owner: OptimizerState) -> None:
        super().__init__(dict)
        self._owner = weakref.ref(owner)
        self.changes = 0
        self.update(rows)

    def __missing__(self, parameter: Any) -> Any:
        self[parameter] = {}
        return self[parameter]

    def __getitem__(self, parameter: Any) -> Any:
        owner = self._owner()
        if owner is not None:  # as reading a tensor on a GPU waits for what writes it
            under_way.finish(owner)
        return super().__getitem__(parameter)

    def __setitem__(self, parameter: Any, row: Mapping[str, Any]) -> None:
        owner = self._owner()
        if owner is not None and isinstance(parameter, torch.Tensor):
            row = ParameterState(row, parameter, owner)
        super().__setitem__(parameter, row)
        self._note()

    def update(self, rows: Any = (), **_: Any) -> None:  # type: ignore[override]
        for parameter, row in dict(rows).items():
            self[parameter] = row

    def __delitem__(self, parameter: Any) -> None:
        super().__delitem__(parameter)
        self._note()

    def pop(self, parameter: Any, *default: Any) -> Any:
        row = super().pop(parameter, *default)
        self._note()
        return row

    def clear(self) -> None:
        super().clear()
        self._note()

    def _note(self) -> None:
        self.changes += 1
        owner = self._owner()
        if owner is not None:
            owner.note_change()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return dict, (dict(self),)


class OptimizerState(torch.optim.Optimizer):
    """Base of `ArrayOptimizer`: names of hyper-parameters, the update rule, groups, and the state of each parameter."""

    torch_class: ClassVar[Callable[..., torch.optim.Optimizer] | None] = None
    per_model: ClassVar[tuple[str, ...]] = ()
    pairs: ClassVar[dict[str, tuple[str, str]]] = {}
    """Arguments that are two hyper-parameters in one, as torch writes them."""
    flags: ClassVar[tuple[str, ...]] = ("maximize",)
    B: int = 0
    _plans: dict[Any, StepPlan]
    _momentum: tuple[torch.Tensor, bool] | None
    _changes: int = 0

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "state" and not isinstance(value, StateTable):
            value = StateTable(value, self)
        super().__setattr__(name, value)
        if name in ("state", "param_groups", "on_nan"):
            self.note_change()

    @property
    def revision(self) -> int:
        """Count of the changes that the values of hyper-parameters do not tell: groups, flags, tensors of the state."""
        self.own_groups()
        return self._changes

    def note_change(self) -> None:
        """Note a change for whoever looks at `revision`."""
        self.__dict__["_changes"] = self._changes + 1

    def place_of(self, group: Any) -> int:
        """Find the group's place in `param_groups`; the next one if it is not there yet."""
        return next((i for i, one in enumerate(self.param_groups) if one is group), len(self.param_groups))

    def own_groups(self) -> list[ParameterGroup]:
        """List `param_groups`; those that a caller put in by hand are made groups of this optimizer."""
        groups: list[Any] = self.__dict__.get("param_groups", [])
        for place, group in enumerate(groups):
            if type(group) is not ParameterGroup:
                groups[place] = self._owned(group)
                self.note_change()
        return groups

    def _owned(self, group: Group) -> ParameterGroup:
        own = ParameterGroup(group, self)
        for name in (*self.per_model, *self.pairs):
            if name in group and not isinstance(dict.get(own, name), HyperParameter):
                own[name] = group[name]
        return own

    def limit(self, max_grad_norm: torch.Tensor | None) -> None:
        """Clip by these norms `[B]` in all groups, which are clipped together; None clips no more."""
        for group in self.own_groups():
            if max_grad_norm is None:
                dict.pop(group, "max_grad_norm", None)
            else:
                group.put("max_grad_norm", max_grad_norm)
        self._keep_norms()
        self.note_change()

    def _keep_norms(self) -> None:
        """Give each group a place for the norms of a step's gradients."""
        for group in self.own_groups():
            group.setdefault("grad_norms", torch.zeros_like(group["active"], dtype=torch.float64))

    def rule(self, group: Group, hyper: Hyper) -> str:
        """The name in `dnnsuite.ops.RULES` of the formula that `group` needs."""
        raise TypeError(f"{type(self).__name__} names no rule")

    def any_momentum(self, hyper: Hyper) -> bool:
        """Return True if any model has momentum. On a GPU, where that waits, the answer is kept."""
        momentum = hyper["momentum"]
        if not momentum.is_cuda:
            return bool(momentum.any())
        if self._momentum is None or self._momentum[0] is not momentum:
            self._momentum = (momentum, bool(momentum.any()))
        return self._momentum[1]

    def init_state(self, group: Group, params: Sequence[torch.Tensor], state: Any) -> None:
        """Give those of `params` that have none yet their first state."""
        self.fill_state(self.rule(group, group), group, params, state, group)

    def fill_state(
        self, rule: str, group: Group, params: Sequence[torch.Tensor], state: Any, hyper: Hyper
    ) -> None:
        """Create the states that `rule` takes, for those of `params` that lack them."""
        takes = ops.RULES[rule]
        for name in takes.scalars:
            new = [p for p in params if name not in state[p]]
            if new:
                # Rows of one tensor, so that a file holds one for all parameters.
                rows = torch.zeros(len(new), new[0].size(0), dtype=torch.float64, device=new[0].device)
                for parameter, row in zip(new, rows.unbind(0), strict=True):
                    state[parameter][name] = row
        for parameter in params:
            for name in takes.states:
                own = state[parameter]
                if name not in own:
                    value = torch.zeros_like(parameter, memory_format=torch.preserve_format)
                    own[name] = self.start_state(name, value, hyper)
                elif own[name].stride() != parameter.stride():  # of a file, or of an array that was edited
                    own[name] = torch.empty_like(parameter).copy_(own[name])

    def start_state(self, name: str, value: torch.Tensor, hyper: Hyper) -> torch.Tensor:
        """A new state, given as zeros."""
        return value
