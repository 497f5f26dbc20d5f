# SPDX-License-Identifier: MIT
"""Stacking of the models' tensors, and comparison of their attributes."""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.hooks import RemovableHandle

from .._torch import has_gradient_hook
from ..errors import InvalidArgument
from ..nn.array_module import GROUP


@torch.no_grad()
def stacked_tensor(name: str, values: Sequence[Any]) -> Any:
    """Stack the models' tensors, model i at index i of dimension 0; raise InvalidArgument if they differ in form."""
    first = values[0]
    for index, value in enumerate(values):
        for what in ("shape", "dtype", "device", "requires_grad"):
            mine, other = getattr(first, what, None), getattr(value, what, None)
            if mine != other:
                mine, other = (list(v) if what == "shape" and v is not None else v for v in (mine, other))
                which = "" if what == "shape" else f".{what}"
                advice = GROUP if what == "shape" else ""
                raise InvalidArgument(
                    f"models 0 and {index} differ: {name}{which} is {mine} and {other}{advice}"
                )
    return torch.stack([value.detach() for value in values])


def stacked_parameter(name: str, values: Sequence[Any]) -> torch.nn.Parameter:
    """Stack the models' parameters, as `stacked_tensor` does tensors."""
    if any(map(has_gradient_hook, values)):
        raise InvalidArgument(f"{name} has a gradient hook, which would see the gradients of all models")
    return torch.nn.Parameter(stacked_tensor(name, values), requires_grad=values[0].requires_grad)


class Comparison:
    """Comparison of models' attributes as far as their code can tell them apart.

    `registered` are the parameters and modules that have a place in the models' trees: those are compared there.
    """

    def __init__(self, registered: frozenset[int] | None = None) -> None:
        self._registered = registered
        self._under_way: set[tuple[int, int]] = set()

    def same(self, a: Any, b: Any) -> bool:
        """Return True if `a` of one model means what `b` of another does."""
        if a is b:
            return True
        if type(a) is not type(b):
            return False
        pair = (id(a), id(b))
        if pair in self._under_way:
            return True  # one that holds itself
        self._under_way.add(pair)
        try:
            return self._compare(a, b)
        finally:
            self._under_way.discard(pair)

    def _in_the_tree(self, a: Any, b: Any) -> bool:
        return self._registered is None or (id(a) in self._registered and id(b) in self._registered)

    def _compare(self, a: Any, b: Any) -> bool:
        if isinstance(a, (torch.nn.Parameter, torch.nn.Module)) and self._in_the_tree(a, b):
            return True
        if isinstance(a, torch.Tensor):
            return (
                a.shape == b.shape and a.dtype == b.dtype and a.device == b.device and bool(torch.equal(a, b))
            )
        if isinstance(a, np.ndarray):
            return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
        if isinstance(
            a, (bool, int, float, complex, str, bytes, torch.dtype, torch.device, range, set, frozenset)
        ):
            return bool(a == b) or (a != a and b != b)
        if isinstance(a, (list, tuple, collections.deque)):
            return len(a) == len(b) and all(map(self.same, a, b))
        if isinstance(a, dict):
            return list(a) == list(b) and all(self.same(value, b[key]) for key, value in a.items())
        if isinstance(a, types.MethodType):
            return self.same(a.__func__, b.__func__) and self.same(a.__self__, b.__self__)
        if isinstance(a, types.FunctionType):
            return a.__code__ is b.__code__ and self.same(_held_by(a), _held_by(b))
        if isinstance(a, RemovableHandle):  # of hooks, which are compared where they are
            return True
        if isinstance(a, functools.partial):
            return self.same((a.func, a.args, a.keywords), (b.func, b.args, b.keywords))
        if isinstance(a, (type, types.BuiltinFunctionType)):
            return False
        if hasattr(a, "__dict__"):
            return self.same(vars(a), vars(b))
        return type(a).__eq__ is object.__eq__ or bool(a == b)


def _held_by(function: types.FunctionType) -> Any:
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    return cells, function.__defaults__, function.__kwdefaults__


def same(a: Any, b: Any) -> bool:
    """Return True if two attributes of two models mean the same to their code, as far as that can be seen."""
    return Comparison().same(a, b)


_NO_ATTRIBUTES = frozenset(vars(torch.nn.Module()))


def differences(
    models: Sequence[torch.nn.Module], registered: frozenset[int] | None = None
) -> dict[str, int]:
    """Find the plain attributes in which a model differs from the first one: name to the first such model."""
    first, found = vars(models[0]), {}
    for index, model in enumerate(models[1:], 1):
        other = vars(model)
        for name in {**first, **other}:
            if name in found or name in _NO_ATTRIBUTES:
                continue
            both = name in first and name in other
            if not both or not Comparison(registered).same(first[name], other[name]):
                found[name] = index
    return found


def registered_in(models: Sequence[torch.nn.Module]) -> frozenset[int]:
    """Collect the ids of parameters, buffers and modules in the models' trees."""
    return frozenset(
        id(x) for model in models for x in (*model.parameters(), *model.buffers(), *model.modules())
    )
