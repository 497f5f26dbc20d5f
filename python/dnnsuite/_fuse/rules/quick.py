# SPDX-License-Identifier: MIT
"""Usual calls of torch's functions, answered in few steps: most calls of a forward are such.

A quick rule gets the value `[B, ...]` of the first argument, which is computed and each model's own, and the
arguments. It answers None for any call but a usual one: its rule computes that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ... import ops
from ...nn.functional.mean import mean
from ...nn.model_tensor import ModelTensor, wrap
from ...nn.waiting import FEWEST_SCALED
from .dimensions import permute, reduction, unsqueeze
from .elementwise import converted, elementwise, facts_of, matmul, number
from .shapes import SIMPLE_INDICES, contiguous, getitem, reshape
from .table import BY_NAME, NEEDING_VALUE, QUICK, WITH_WORDS, FunctionRule, QuickRule

_OVER_ALL = frozenset(("sum", "mean", "std", "var", "all", "any", "amax", "amin"))
_PLAIN = frozenset((int, float, type(None)))  # no bool: it may be `inplace`


def quick(*rules: FunctionRule) -> Callable[[QuickRule], QuickRule]:
    """Register a function as the quick rule of torch's functions with one of `rules`."""

    def add(function: QuickRule) -> QuickRule:
        for each in rules:
            QUICK[each] = lambda func: function
        return function

    return add


def _of_elements(func: Any) -> QuickRule | None:
    """Find the quick rule of a function of elements."""
    kind = facts_of(func)
    if kind.in_place or func.__name__ == "type":
        return None
    if kind.ours is not None:
        ours = kind.ours
        return lambda func, x, args: ModelTensor(ours(x)) if len(args) == 1 else None
    product, relu, sigmoid, slow_of_slices = kind.product, kind.relu, kind.sigmoid, kind.slow_of_slices

    def call(func: Any, x: Tensor, args: tuple[Any, ...]) -> Any:
        if len(args) == 2:
            other = args[1]
            if type(other) is ModelTensor:
                y = other._value
                if y is None or y.dim() != x.dim():
                    return None
                if product and x.shape != y.shape and max(x.numel(), y.numel()) >= FEWEST_SCALED:
                    return None
                return ModelTensor(func(x, y))
            return ModelTensor(func(x, other)) if type(other) is float or type(other) is int else None
        if len(args) == 1:
            if (relu and x.dim() in (4, 5)) or (sigmoid and args[0].half_of is not None):
                return None  # it may be computed with what follows
            if slow_of_slices and not x.is_contiguous():
                return None
            result = func(x)
            return args[0] if result is x else wrap(result)
        others = args[1:]
        return ModelTensor(func(x, *others)) if _PLAIN.issuperset(map(type, others)) else None

    return call


QUICK[elementwise] = _of_elements
_TRANSPOSING = [BY_NAME[name] for name in ("transpose", "swapdims", "swapaxes")]
NEEDING_VALUE |= {contiguous, converted, getitem, matmul, permute, reshape, unsqueeze, *_TRANSPOSING}


@quick(converted)
def _converted(func: Any, x: Tensor, args: tuple[Any, ...]) -> Any:
    if len(args) != 2 or type(args[1]) is not torch.dtype:
        return None
    result = func(x, args[1])
    return args[0] if result is x else ModelTensor(result)


@quick(number)
def _number(func: Any, x: Tensor, args: tuple[Any, ...]) -> Any:
    if len(args) != 1 or func is not torch.Tensor.float:
        return None
    result = func(x)
    return args[0] if result is x else ModelTensor(result)


@quick(contiguous)
def _contiguous(func: Any, x: Tensor, args: tuple[Any, ...]) -> Any:
    return args[0] if len(args) == 1 and x.is_contiguous() else None


@quick(reshape)
def _reshape(func: Any, x: Tensor, args: tuple[Any, ...]) -> Any:
    sizes = args[1] if len(args) == 2 and type(args[1]) in (tuple, list, torch.Size) else args[1:]
    if set(map(type, sizes)) != {int} or not x.is_contiguous() or not x.numel():
        return None
    return ModelTensor(x.view(x.size(0), *sizes))


@quick(getitem)
def _getitem(func: Any, x: Tensor, args: tuple[Any, ...]) -> Any:
    index = args[1]
    if type(index) is tuple:
        if not SIMPLE_INDICES.issuperset(map(type, index)):
            return None
        result = ModelTensor(x[(slice(None), *index)])
    elif type(index) in SIMPLE_INDICES:
        result = ModelTensor(x[:, index])
    else:
        return None
    if args[0].unsure:
        result.unsure = True
    return result


@quick(*_TRANSPOSING)
def _transposed(func: Any, x: Tensor, args: tuple[Any, ...]) -> Any:
    if len(args) != 3 or func.__name__[-1] == "_":
        return None
    _, a, b = args
    rank = x.dim() - 1
    if type(a) is not int or type(b) is not int or not (-rank <= a < rank and -rank <= b < rank):
        return None
    result = ModelTensor(x.transpose(a + 1 if a >= 0 else a, b + 1 if b >= 0 else b))
    if args[0].unsure:
        result.unsure = True
    return result


@quick(unsqueeze)
def _unsqueezed(func: Any, x: Tensor, args: tuple[Any, ...]) -> Any:
    rank = x.dim()
    if len(args) != 2 or type(args[1]) is not int or not -rank <= args[1] < rank:
        return None
    return ModelTensor(x.unsqueeze(args[1] + 1 if args[1] >= 0 else args[1]))


@quick(permute)
def _permuted(func: Any, x: Tensor, args: tuple[Any, ...]) -> Any:
    dims, rank = args[1:], x.dim() - 1
    if len(dims) != rank or set(map(type, dims)) != {int} or not -rank <= min(dims) <= max(dims) < rank:
        return None
    return ModelTensor(x.permute(0, *(dim + 1 if dim >= 0 else dim for dim in dims)))


@quick(reduction)
def _reduced(func: Any, x: Tensor, args: tuple[Any, ...], dim: Any = None, keepdim: Any = False) -> Any:
    name = func.__name__
    if len(args) == 2 and type(args[1]) is ModelTensor:  # max(a, b)
        y = args[1]._value
        return ModelTensor(func(x, y)) if y is not None and y.dim() == x.dim() and dim is None else None
    if len(args) == 2 and dim is None:
        dim = args[1]
    elif len(args) != 1:
        return None
    if dim is None:
        if keepdim is not False or name not in _OVER_ALL:
            return None
        return ModelTensor(func(x if x.dim() == 2 else x.reshape(x.size(0), -1), 1))
    rank = x.dim() - 1
    if type(dim) is not int or type(keepdim) is not bool or not -rank <= dim < rank or name not in ("sum", "mean"):
        return None
    dim = dim + 1 if dim >= 0 else dim
    return ModelTensor(func(x, dim, keepdim) if name == "sum" else mean(x, dim, keepdim))


WITH_WORDS.add(reduction)


@quick(matmul)
def _product(func: Any, x: Tensor, args: tuple[Any, ...]) -> Any:
    if len(args) != 2 or type(args[1]) is not ModelTensor or func.__name__ == "__rmatmul__":
        return None
    y = args[1]._value
    return ModelTensor(ops.matmul(x, y)) if y is not None and y.dim() == x.dim() > 2 else None
