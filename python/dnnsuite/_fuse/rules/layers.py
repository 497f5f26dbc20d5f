# SPDX-License-Identifier: MIT
"""Rules of `torch.nn.functional`, and of the functions of torch behind it: the function of this package of the same
name, on `[B, ...]`."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch.nn import functional

from ...nn import functional as ours
from ...nn.model_tensor import ModelTensor, expanded, state, wrap_all
from ...nn.waiting_relu import input_of_relu
from .once import FOR_ONE
from .random import next_stream
from .table import FINDERS, FunctionRule, arguments, settle, width_of

#: Functions of torch called as those of that name in torch.nn.functional are: `torch.max_pool2d(x, 2)`. Up to how many
#: arguments mean the same in both; behind them torch has options of one backend.
_TWINS: dict[Any, int] = {
    torch.max_pool1d: 6,
    torch.max_pool2d: 6,
    torch.max_pool3d: 6,
    torch.layer_norm: 5,
    torch.group_norm: 5,
    torch.dropout: 3,
}
_BACKEND_OPTIONS = frozenset({"cudnn_enable", "cudnn_enabled"})


def _as_functional(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Turn the arguments of one of `_TWINS` into those of its twin."""
    names = {"train": "training"}
    kept = {names.get(name, name): value for name, value in kwargs.items() if name not in _BACKEND_OPTIONS}
    return args[: _TWINS[func]], kept


def _unwrapped(args: tuple[Any, ...], kwargs: dict[str, Any], B: int) -> tuple[Any, dict[str, Any]]:
    """Unwrap every ModelTensor among the arguments, and expand every shared tensor to `[B, ...]`."""
    if any(isinstance(value, (tuple, list, dict)) for value in (*args, *kwargs.values())):
        found: tuple[Any, dict[str, Any]] = arguments((args, kwargs), B)
        return found
    return [expanded(value, B) for value in args], {name: expanded(kwargs[name], B) for name in kwargs}


def layer_rule(func: Any) -> FunctionRule | None:
    """Find the rule of a function of torch.nn.functional, or of its twin in torch, that `dnnsuite.nn.functional` has
    too."""
    name = getattr(func, "__name__", "")
    twin = func in _TWINS
    if name == "_scaled_dot_product_attention" or not (twin or getattr(functional, name, None) is func):
        return None
    mine = getattr(ours, name, None)
    if mine is None or mine is func or name not in ours.__all__:
        return None
    pools = name in ("max_pool1d", "max_pool2d")
    indexes = name in ("max_pool1d_with_indices", "max_pool2d_with_indices")
    draws = "rng" in inspect.signature(mine).parameters

    def call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        B = state.B or width_of(args, kwargs)
        if twin:
            args, kwargs = _as_functional(func, args, kwargs)
        plain_pool = indexes or (pools and not kwargs.get("return_indices"))
        if plain_pool and len(args) < 7 and type(args[0]) is ModelTensor:
            before = input_of_relu(args[0].deferred)
            if before is not None:
                return wrap_all(ours.max_pool_of_relu(mine, before, *args[1:], **kwargs))
        if kwargs.get("inplace"):
            settle()
        args, kwargs = _unwrapped(args, kwargs, B)
        if draws:
            kwargs["rng"] = next_stream(B)
        return wrap_all(mine(*args, **kwargs))

    def for_one(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if twin:
            args, kwargs = _as_functional(func, args, kwargs)
        if draws:
            kwargs["rng"] = torch.zeros(1, 2, dtype=torch.int64)  # nothing is drawn
        return mine(*args, **kwargs)

    FOR_ONE[call] = for_one
    return call


FINDERS.append(layer_rule)
