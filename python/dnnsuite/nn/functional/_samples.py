# SPDX-License-Identifier: MIT
"""Functions of single samples on an array, whose samples are one batch; and a value per model where torch takes one
number: a margin, a smoothing, the slope of an activation."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from ...errors import InvalidArgument
from ..array_module import per_model


def each_sample(function: Callable[..., Any], name: str, dims: int, *tensors: Tensor) -> Any:
    """Apply `function` to `[B, N, C, *]` tensors with `dims` dimensions after the channels, or to `[B, C, *]`.

    A batch that all models share (stride 0) is computed once. Samples that interleave the models in memory, as after a
    grouped convolution, are taken in that order, without a copy.
    """
    input = tensors[0]
    if input.dim() == dims + 2:  # no batch: the models are one
        return function(*tensors)
    if input.dim() != dims + 3:
        space = ", ".join("DHW"[-dims:]) if 0 < dims <= 3 else "*"
        raise InvalidArgument(
            f"{name} takes [B, N, C, {space}] or [B, C, {space}] with the model in dimension 0; got {list(input.shape)}"
        )
    B, N = input.shape[:2]
    if B > 1 and all(t.stride(0) == 0 for t in tensors):
        return _map(lambda y: y.unsqueeze(0).expand(B, *y.shape), function(*(t.select(0, 0) for t in tensors)))
    if B > 1 and N > 1 and all(t.stride(1) == B * t.stride(0) for t in tensors):
        in_turn = function(*(t.transpose(0, 1).flatten(0, 1) for t in tensors))
        return _map(lambda y: y.unflatten(0, (N, B)).transpose(0, 1), in_turn)
    return _map(lambda y: y.unflatten(0, (B, N)), function(*(t.flatten(0, 1) for t in tensors)))


def over_samples(plain: Callable[..., Any], name: str, dims: int) -> Callable[..., Any]:
    """Make the function for an array of torch's function `plain`: same arguments, the first one `[B, N, C, *]` or `[B,
    C, *]`."""

    def function(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        return each_sample(lambda x: plain(x, *args, **kwargs), name, dims, input)

    with contextlib.suppress(ValueError):  # a function of C++ has none; torch's choice between two has that of one
        function.__signature__ = inspect.signature(getattr(F, f"{name}_with_indices", plain))  # type: ignore[attr-defined]
    shape = ", ".join(("B", "N", "C", *"DHW"[3 - dims :]))
    return named(function, name, f"of `[{shape}]`, or without N.")


def named(function: Callable[..., Any], name: str, what: str) -> Callable[..., Any]:
    """Let a function be that of an array for torch's function `name`."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`torch.nn.functional.{name}` {what}"
    return function


def _map(change: Callable[[Tensor], Tensor], result: Any) -> Any:
    return tuple(map(change, result)) if isinstance(result, tuple) else change(result)


FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
_ONE_FOR_ALL = (float, int, type(None), bool)
_SHARED_IF_FLAT = "weight"  # `[C]` is a weight of the classes that all models share


def takes_own_numbers(*names: str) -> Callable[[FunctionT], FunctionT]:
    """Let the arguments `names` of a function on `[B, ...]` be a number for all models or a sequence of B numbers.

    Equal numbers are one number. Others are computed model by model, which gives each model the bits of a call of its
    own; what is computed before and after stays fused.
    """

    def decorate(function: FunctionT) -> FunctionT:
        signature = inspect.signature(function)
        places = [(name, list(signature.parameters).index(name)) for name in names]

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            for name, place in places:
                value = args[place] if place < len(args) else kwargs.get(name)
                if type(value) not in _ONE_FOR_ALL:
                    break
            else:
                return function(*args, **kwargs)
            given = signature.bind(*args, **kwargs).arguments
            B = len(next(value for value in given.values() if isinstance(value, Tensor)))
            own: dict[str, Any] = {name: per_model(given[name], B, name) for name in names if _is_own(name, given)}
            own |= {name: values[0] for name, values in own.items() if values and len(set(values)) == 1}
            several = [name for name, values in own.items() if isinstance(values, list)]
            if not several or not B:
                return function(**given | {name: own[name] or 0.0 for name in several} | own)
            return torch.cat([function(**of_model) for of_model in _of_models(given | own, several, B)])

        call.own_numbers = frozenset(names)  # type: ignore[attr-defined]
        return call  # type: ignore[return-value]

    return decorate


def _is_own(name: str, given: dict[str, Any]) -> bool:
    return name in given and type(given[name]) not in _ONE_FOR_ALL


def _of_models(given: dict[str, Any], several: list[str], B: int) -> Iterator[dict[str, Any]]:
    """Split the arguments of B models; the gradient of `split` is one tensor, of B slices it would be B."""

    def each(name: str, value: Any) -> Sequence[Any]:
        if name in several:
            return value
        whole = not isinstance(value, Tensor) or not value.dim() or len(value) != B
        return [value] * B if whole or (name == _SHARED_IF_FLAT and value.dim() == 1) else value.split(1)

    columns = {name: each(name, value) for name, value in given.items()}
    for index in range(B):
        yield {name: values[index] for name, values in columns.items()}
