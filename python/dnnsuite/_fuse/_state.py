# SPDX-License-Identifier: MIT
"""Tensors and attributes of several models: stacked, and compared."""

from __future__ import annotations

import functools
import types
from collections.abc import Sequence
from typing import Any

import torch

from ..errors import InvalidArgument


@torch.no_grad()
def stacked_tensor(name: str, values: Sequence[Any]) -> Any:
    """The models' tensors as one, model i at index i of dimension 0."""
    first = values[0]
    for index, value in enumerate(values):
        for what in ("shape", "dtype", "device", "requires_grad"):
            mine, other = getattr(first, what, None), getattr(value, what, None)
            if mine != other:
                mine, other = (list(v) if what == "shape" and v is not None else v for v in (mine, other))
                which = "" if what == "shape" else f".{what}"
                raise InvalidArgument(f"models 0 and {index} differ: {name}{which} is {mine} and {other}")
    return torch.stack([value.detach() for value in values])


def stacked_parameter(name: str, values: Sequence[Any]) -> torch.nn.Parameter:
    """As `stacked_tensor`, a parameter."""
    if any(getattr(value, "_backward_hooks", None) for value in values):
        raise InvalidArgument(f"{name} has a gradient hook, which would see the gradients of all models")
    return torch.nn.Parameter(stacked_tensor(name, values), requires_grad=values[0].requires_grad)


def same(a: Any, b: Any, depth: int = 6) -> bool:
    """Whether two attributes of two models mean the same to their code, as far as that can be seen."""
    if a is b or depth == 0:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.nn.Parameter):
        return True  # parameters are compared where they belong to a module
    if isinstance(a, torch.Tensor):
        return a.shape == b.shape and a.dtype == b.dtype and bool(torch.equal(a, b))
    if isinstance(a, (bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size, range)):
        return bool(a == b) or (a != a and b != b)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y, depth - 1) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(value, b[key], depth - 1) for key, value in a.items())
    if isinstance(a, (set, frozenset)):
        return bool(a == b)
    if isinstance(a, torch.nn.Module):
        return True  # modules are compared where they stand in the tree
    if isinstance(a, types.MethodType):
        return same(a.__func__, b.__func__, depth - 1)
    if isinstance(a, types.FunctionType):
        cells = [[c.cell_contents for c in f.__closure__ or ()] for f in (a, b)]
        return a.__code__ is b.__code__ and same(cells[0], cells[1], depth - 1)
    if isinstance(a, functools.partial):
        return same((a.func, a.args, a.keywords), (b.func, b.args, b.keywords), depth - 1)
    if isinstance(a, (type, types.BuiltinFunctionType)):
        return False
    if hasattr(a, "__dict__"):
        return same(vars(a), vars(b), depth - 1)
    return True
