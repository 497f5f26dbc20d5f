# SPDX-License-Identifier: MIT
"""State of an optimizer's parameters as dictionaries like torch's, which notify the optimizer of changes."""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import torch

from .. import _under_way as under_way
from .. import ops
from ..errors import InvalidArgument
from ._values import as_vector

SCALARS = frozenset(name for rule in ops.RULES.values() for name in rule.scalars)
STATES = frozenset(name for rule in ops.RULES.values() for name in rule.states)


class _Noted(dict[Any, Any]):
    """Dictionary whose owner is notified of every change by any method; copies and files hold a plain dict."""

    _owner: weakref.ref[Any]

    def __setitem__(self, name: Any, value: Any) -> None:
        super().__setitem__(name, value)
        self._note()

    def update(self, *given: Any, **named: Any) -> None:
        for name, value in dict(*given, **named).items():
            self[name] = value

    def __ior__(self, given: Any) -> Any:  # type: ignore[misc]
        self.update(given)
        return self

    def setdefault(self, name: Any, default: Any = None) -> Any:
        if name not in self:
            self[name] = default
        return self[name]

    def __delitem__(self, name: Any) -> None:
        super().__delitem__(name)
        self._note()

    def pop(self, name: Any, *default: Any) -> Any:
        value = super().pop(name, *default)
        self._note()
        return value

    def popitem(self) -> tuple[Any, Any]:
        found = super().popitem()
        self._note()
        return found

    def clear(self) -> None:
        super().clear()
        self._note()

    def _note(self) -> None:
        owner = self._owner()
        if owner is not None:
            owner.note_change()

    def __reduce_ex__(self, protocol: Any) -> Any:  # the optimizer makes it its state again
        return dict, (dict(self),)


class ParameterState(_Noted):
    """State of one parameter, as torch's dict is.

    A scalar such as `step` takes a number or one per model and is float64 `[B]`; a state such as `exp_avg` takes a
    tensor of the parameter's shape. Other names take anything.
    """

    def __init__(self, values: Mapping[str, Any], parameter: torch.Tensor, owner: Any) -> None:
        super().__init__(values)
        self._parameter, self._owner = parameter, weakref.ref(owner)
        for name in SCALARS & self.keys():
            value = self[name]
            if not isinstance(value, torch.Tensor) or value.dim() == 0:
                dict.__setitem__(self, name, self._scalar(name, value))

    def __setitem__(self, name: str, value: Any) -> None:
        if name == "momentum_buffer" and value is None:  # torch's SGD: the buffer begins anew
            dict.pop(self, "step", None)
            self.pop(name, None)
            return
        if name in SCALARS:
            value = self._scalar(name, value)
        elif name in STATES:
            value = self._state(name, value)
        super().__setitem__(name, value)

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


class StateTable(_Noted, defaultdict[Any, Any]):
    """State of every parameter, as torch's `optimizer.state` is; `changes` counts rows that came or went."""

    def __init__(self, rows: Mapping[Any, Mapping[str, Any]], owner: Any) -> None:
        super().__init__()
        self.default_factory = dict
        self._owner = weakref.ref(owner)
        self.changes = 0
        self.update(rows)

    def __missing__(self, parameter: Any) -> Any:
        self[parameter] = {}
        return self[parameter]

    def __getitem__(self, parameter: Any) -> Any:
        self._finish()
        return super().__getitem__(parameter)

    def get(self, parameter: Any, default: Any = None) -> Any:
        self._finish()
        return super().get(parameter, default)

    def values(self) -> Any:
        self._finish()
        return super().values()

    def items(self) -> Any:
        self._finish()
        return super().items()

    def _finish(self) -> None:
        """Wait for steps under way, as reading a tensor on a GPU waits for what writes it."""
        under_way.finish(self._owner())

    def __setitem__(self, parameter: Any, row: Mapping[str, Any]) -> None:
        owner = self._owner()
        if owner is not None and isinstance(parameter, torch.Tensor):
            row = ParameterState(row, parameter, owner)
        super().__setitem__(parameter, row)

    def _note(self) -> None:
        self.changes += 1
        super()._note()
