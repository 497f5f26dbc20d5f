# SPDX-License-Identifier: MIT
"""A number that code reads from its module and that is another one in each model: a rate of dropout, a factor."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from ...nn import model_tensor
from ...nn.model_tensor import NotFusable

#: Torch rounds a number in another way than a tensor of numbers in other dtypes.
FLOATS = frozenset((torch.float32, torch.float64))


class ModelNumber:
    """Numbers of B models that code sees as the one of its own.

    It is an argument of torch's functions, and a term or factor of numbers; comparisons with numbers have an answer
    where it is the same for all models. Whatever else is done with it is refused.

    torch's C functions take it for a symbolic number and ask `__torch_function__`, as they do for tensors.
    """

    __slots__ = ("_name", "_values")

    def __init__(self, values: Sequence[float], name: str) -> None:
        self._values, self._name = tuple(values), name

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return torch.SymFloat

    @property
    def node(self) -> Any:
        """Refuse to be a number of a function that knows no models: what it computes would be one for all."""
        raise TypeError(f"{self._name} differs from model to model")

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        return model_tensor.handler(func, args, kwargs or {})

    def __iter__(self) -> Iterator[float]:
        """Yield the number of each model, for functions of ours that take one of each."""
        return iter(self._values)

    def any(self) -> bool:
        """Return True if one of them is not zero."""
        return any(self._values)

    def _refusal(self) -> NotFusable:
        return NotFusable(f"{self._name} differs from model to model")

    def _computed(self, function: Callable[[Any, Any], Any], other: Any) -> Any:
        if isinstance(other, torch.Tensor):
            return NotImplemented  # the tensor's own operator calls `__torch_function__`
        numbers = other._values if type(other) is ModelNumber else [other] * len(self._values)
        if not all(type(number) in (int, float) for number in numbers):
            raise self._refusal()
        return ModelNumber(list(map(function, self._values, numbers)), self._name)

    def _agreed(self, function: Callable[[Any, Any], bool], other: Any) -> bool:
        if isinstance(other, torch.Tensor):
            return NotImplemented
        if not isinstance(other, (int, float)):  # a number that a recording follows says it is one
            raise self._refusal()
        answers = {function(value, other) for value in self._values}
        if len(answers) > 1:
            raise self._refusal()
        return answers.pop()

    def __bool__(self) -> bool:
        return self._agreed(operator.ne, 0)

    def __abs__(self) -> ModelNumber:
        return ModelNumber(list(map(abs, self._values)), self._name)

    def __neg__(self) -> ModelNumber:
        return ModelNumber([-value for value in self._values], self._name)

    __hash__ = None  # type: ignore[assignment]


def _computing(function: Callable[[Any, Any], Any]) -> tuple[Any, Any]:
    def own(self: ModelNumber, other: Any) -> Any:
        return self._computed(function, other)

    def reflected(self: ModelNumber, other: Any) -> Any:
        return self._computed(lambda mine, theirs: function(theirs, mine), other)

    return own, reflected


def _comparing(function: Callable[[Any, Any], bool]) -> Any:
    return lambda self, other: self._agreed(function, other)


for _name in ("add", "sub", "mul", "truediv", "pow"):
    _own, _reflected = _computing(getattr(operator, _name))
    setattr(ModelNumber, f"__{_name}__", _own)
    setattr(ModelNumber, f"__r{_name}__", _reflected)
for _name in ("lt", "le", "gt", "ge", "eq"):
    setattr(ModelNumber, f"__{_name}__", _comparing(getattr(operator, _name)))


def _refused(self: ModelNumber, *args: Any, **kwargs: Any) -> Any:
    raise self._refusal()


for _names in (
    "float int index complex round trunc mod rmod floordiv rfloordiv",
    "getitem call str format deepcopy reduce_ex",
):
    for _name in _names.split():
        setattr(ModelNumber, f"__{_name}__", _refused)
