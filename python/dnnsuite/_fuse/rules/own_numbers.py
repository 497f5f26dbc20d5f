# SPDX-License-Identifier: MIT
"""Functions that get a number of each model where torch takes one: a slope, an eps, an exponent, a scale of attention.

Arithmetic takes the numbers as a tensor `[B]`, and functions of `dnnsuite.nn.functional` that know such arguments take
them as they are. Any other function is called once for each model, with the bits of a model that is alone; the code
around that call stays fused.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import torch

from ..._torch import tree_flatten, tree_unflatten
from ...nn import functional as ours
from ...nn.model_tensor import ModelTensor, NotFusable, expanded, outside, wrap
from ...ops.device import numbers
from ..code.stand_in import FLOATS, ModelNumber
from .once import draws_numbers
from .once import in_place as is_in_place
from .table import CALLS_OURS, OF_OWN_NUMBERS, FunctionRule, before_writing, plain_name, settle, width_of

_ARITHMETIC = frozenset((
    "add", "radd", "sub", "rsub", "subtract", "mul", "rmul", "multiply", "div", "divide", "truediv", "rtruediv",
    "true_divide", "clamp", "clip", "clamp_min", "clamp_max", "eq", "ne", "lt", "le", "gt", "ge", "greater", "less",
    "greater_equal", "less_equal", "not_equal",
))  # fmt: skip


def with_own_numbers(found: FunctionRule, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute `func(*args, **kwargs)`, some of whose arguments are a `ModelNumber`; `found` is its rule."""
    name = plain_name(func)
    if kwargs.get("out") is not None:
        raise NotFusable(f"{name}(out=...) has no meaning for several models")
    dtypes = {value.dtype for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)}
    if name in _ARITHMETIC and len(dtypes) == 1 and dtypes <= FLOATS and type(kwargs.get("alpha")) is not ModelNumber:
        tensors = {key: _as_tensor(value, dtypes, args) for key, value in kwargs.items()}
        return found(func, tuple(_as_tensor(value, dtypes, args) for value in args), tensors)
    if _takes(getattr(ours, name, None), args, kwargs) and not is_in_place(func) and not kwargs.get("inplace"):
        return _by_ours(found, func, args, kwargs)
    if name == "rrelu":
        return found(func, args, kwargs)
    if draws_numbers(name, args, kwargs):
        raise NotFusable(f"{name} draws random numbers by one that differs from model to model")
    return _model_by_model(func, args, kwargs)


OF_OWN_NUMBERS.append(with_own_numbers)


def _as_tensor(value: Any, dtypes: Iterable[torch.dtype], args: tuple[Any, ...]) -> Any:
    """Turn the numbers of the models into a tensor of one number per model."""
    if type(value) is not ModelNumber:
        return value
    device = next(a.device for a in args if isinstance(a, torch.Tensor))
    return ModelTensor(numbers(list(value), next(iter(dtypes)), device))


def _takes(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return True if a function of `dnnsuite.nn.functional` takes a value per model for each argument that has some."""
    names: frozenset[str] = getattr(function, "own_numbers", frozenset())
    if not names:
        return False
    positional = list(inspect.signature(function).parameters)[: len(args)]
    given = {**dict(zip(positional, args, strict=False)), **kwargs}
    return all(name in names for name, value in given.items() if type(value) is ModelNumber)


def _by_ours(found: FunctionRule, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if found in CALLS_OURS:
        return found(func, args, kwargs)
    B = width_of(args, kwargs)
    args = tuple(expanded(value, B) for value in args)
    result: torch.Tensor = getattr(ours, plain_name(func))(*args, **{k: expanded(v, B) for k, v in kwargs.items()})
    return wrap(result)


def _model_by_model(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call `func` once for each model on its tensors and numbers, and stack what it returns.

    A function that writes into its first argument writes into a copy of each model's, and these become its value in one
    pass: gradients of some functions read their result, which a write for another model would make stale.
    """
    writes = bool(is_in_place(func) or kwargs.get("inplace"))
    if writes:
        before_writing(func, args[0])
    settle()
    leaves, spec = tree_flatten((args, kwargs))
    B = next(len(list(leaf)) for leaf in leaves if type(leaf) is ModelNumber)
    parts = [_parts(leaf, B) for leaf in leaves]
    if writes:
        parts[0] = [part.clone() for part in parts[0]]
    results = []
    with outside():
        for mine in zip(*parts, strict=True):
            own_args, own_kwargs = tree_unflatten(list(mine), spec)
            results.append(func(*own_args, **own_kwargs))
    if writes:
        args[0].value.copy_(torch.stack(results))
        return args[0]
    if not all(type(result) is torch.Tensor for result in results):
        raise NotFusable(f"{plain_name(func)} of a number that differs from model to model gives no tensor")
    return wrap(torch.stack(results))


def _parts(leaf: Any, B: int) -> Iterable[Any]:
    """Split an argument into that of each model: a gradient of `unbind` is one stack, of B indices B tensors."""
    if type(leaf) is ModelNumber:
        return leaf
    if type(leaf) is not ModelTensor:
        return [leaf] * B
    value = leaf.value
    return value.unbind(0) if value.requires_grad else [value[index] for index in range(B)]
