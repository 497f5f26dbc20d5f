# SPDX-License-Identifier: MIT
"""Functions of single samples on an array: the samples of all models are one batch."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from ...errors import InvalidArgument


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
