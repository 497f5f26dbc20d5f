# SPDX-License-Identifier: MIT
"""Numbers with a fraction that Python reads of a tensor, by `.item()`, and only compares with others.

A recording cannot hold such a number, for it is another one in each step. What decides the step is how the comparisons
come out: a stand-in for the number makes them with tensors, where the recorder sees them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ...nn.model_tensor import ModelTensor
from .places import called_by_user
from .record import StepRecorder

_NUMBERS = (bool, int, float)


class PlainRead(BaseException):
    """The code does something else with a number than arithmetic and comparisons; no `except Exception` stops it."""


class ReadNumber:
    """Number read of a tensor: `tensor` is that tensor in float64, as Python has its numbers."""

    __hash__: Any = None

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return float

    def __bool__(self) -> bool:
        return bool(self.tensor != 0)

    def __neg__(self) -> ReadNumber:
        return ReadNumber(-self.tensor)

    def __abs__(self) -> ReadNumber:
        return ReadNumber(self.tensor.abs())


def _other(value: Any) -> Any:
    """Return what the tensor of a number meets; NotImplemented for what is no number."""
    if type(value) is ReadNumber:
        return value.tensor
    return float(value) if type(value) in _NUMBERS else NotImplemented


def _compared(function: Callable[[Any, Any], Any]) -> Callable[[ReadNumber, Any], Any]:
    def compare(self: ReadNumber, value: Any) -> Any:
        other = _other(value)
        return other if other is NotImplemented else bool(function(self.tensor, other))

    return compare


def _computed(function: Callable[[Any, Any], Any]) -> Callable[[ReadNumber, Any], Any]:
    def compute(self: ReadNumber, value: Any) -> Any:
        other = _other(value)
        return other if other is NotImplemented else ReadNumber(function(self.tensor, other))

    return compute


def _reversed(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def call(tensor: torch.Tensor, other: Any) -> Any:
        return function(other if isinstance(other, torch.Tensor) else torch.full_like(tensor, other), tensor)

    return call


def _refuse(self: ReadNumber, *args: Any) -> Any:
    raise PlainRead


for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(ReadNumber, f"__{_name}__", _compared(getattr(operator, _name)))
for _name in ("add", "sub", "mul", "truediv"):
    _function = getattr(operator, _name)
    setattr(ReadNumber, f"__{_name}__", _computed(_function))
    setattr(ReadNumber, f"__r{_name}__", _computed(_reversed(_function)))
for _name in (
    "float",
    "int",
    "index",
    "round",
    "trunc",
    "floor",
    "ceil",
    "format",
    "str",
    "repr",
    "reduce_ex",
):
    setattr(ReadNumber, f"__{_name}__", _refuse)


class StandIns(TorchFunctionMode):
    """Function mode that returns stand-ins for numbers with a fraction that a user's code reads."""

    def __init__(self, recorder: StepRecorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensor = _given(args) if func is torch.Tensor.item else None
        if tensor is None or called_by_user() is None:
            return func(*args, **(kwargs or {}))
        with self._recorder.overlooking():
            func(*args)  # whoever counts reads sees it
        return ReadNumber(tensor.detach().double().reshape(()))


def _given(args: Any) -> torch.Tensor | None:
    """Return the tensor that is asked for its number, if that has a fraction."""
    tensor: torch.Tensor = args[0].value[0] if type(args[0]) is ModelTensor else args[0]
    return tensor if tensor.is_floating_point() else None
