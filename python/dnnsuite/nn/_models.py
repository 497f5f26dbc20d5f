# SPDX-License-Identifier: MIT
"""Functions of one model's tensors applied to an array's `[B, ...]`, conversion of dimensions, and mixed dtypes: under
autocast a matrix product returns 16 bits, while a norm's parameters keep 32.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import overload

import torch
from torch import Tensor

from .. import ops
from .._torch import transforming
from ..errors import InvalidArgument
from ..ops.device import on_cpu
from ..ops.shared import once


def each_model(function: Callable[..., Tensor], first: Tensor, *others: Tensor | None) -> Tensor:
    """Call `function` on each model's part of the tensors and stack the results; bits are those of one model alone."""
    tensors = (first, *others)
    if len(first) == 0:  # the shape is what one model would give
        zeros = (None if t is None else t.new_zeros(t.shape[1:]) for t in tensors)
        return function(*zeros).unsqueeze(0)[:0]
    if len(first) == 1:
        return function(*(None if t is None else t.squeeze(0) for t in tensors)).unsqueeze(0)
    # unbind and not an index: its gradient is one stack, and not B tensors of the array's size.
    parts = [[None] * len(first) if t is None else t.unbind(0) for t in tensors]
    return stack_models([function(*own) for own in zip(*parts, strict=True)])


def stack_models(results: Sequence[Tensor]) -> Tensor:
    """Stack the models' results to `[B, ...]`, channels last in memory if theirs are."""
    first = results[0]
    if first.dim() < 3 or first.is_contiguous() or not first.movedim(1, -1).is_contiguous():
        return torch.stack(list(results))
    return torch.stack([result.movedim(1, -1) for result in results]).movedim(-1, 2)


def shifted(dim: int, x: Tensor, name: str) -> int:
    """Convert a dimension of one model's tensor to that of the array's x, `[B, ...]`."""
    rank = x.dim() - 1
    if rank < 1 or not -rank <= dim < rank:
        raise InvalidArgument(
            f"{name}: dim={dim} is not a dimension of a model's tensor {list(x.shape[1:])}, part of {list(x.shape)} "
            "whose dimension 0 is the model"
        )
    return dim + 1 if dim >= 0 else dim


def convolve_models(input: Tensor, weight: Tensor, bias: Tensor | None, geometry: ops.ConvolutionGeometry) -> Tensor:
    """Convolve each model's `[N, C, *]` of `input` with its own weight and bias."""
    watched = torch.compiler.is_compiling() or transforming()
    if on_cpu(input) and len(input) > 0 and not watched:
        with contextlib.suppress(RuntimeError):  # torch has a message of its own, below
            return ops.convolve_models(input, weight, bias, geometry)
    return each_model(lambda x, w, b: torch.convolution(x, w, b, *geometry), input, weight, bias)


SIXTEEN_BIT = (torch.bfloat16, torch.float16)


@overload
def match(x: Tensor, like: Tensor | None) -> Tensor: ...
@overload
def match(x: None, like: Tensor | None) -> None: ...
def match(x: Tensor | None, like: Tensor | None) -> Tensor | None:
    """Cast `x` to the dtype of `like`, because operators take inputs of one dtype; None stays None."""
    return x if x is None or like is None else cast(x, like.dtype)


def cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Cast `x` to `dtype`; a shared tensor is cast once."""
    return x if x.dtype == dtype else once(lambda one: one.to(dtype), x)


def computable(x: Tensor) -> Tensor:
    """Cast `x` to a dtype that the operators support on its device: on a CPU 16 bits become 32."""
    return cast(x, torch.float32) if x.dtype in SIXTEEN_BIT and x.device.type == "cpu" else x


def widened(x: Tensor, *others: Tensor | None) -> Tensor:
    """Return `x` in 32 bits if it has 16 and one of `others` has 32: under autocast a residual stream keeps 32."""
    if x.dtype in SIXTEEN_BIT and any(other is not None and other.dtype == torch.float32 for other in others):
        return x.float()
    return x


def promoted(gates: Tensor, state: Tensor) -> torch.dtype:
    """Return the dtype of a state that `gates` are added to: under autocast on a CPU torch keeps a 32-bit state."""
    return torch.promote_types(gates.dtype, state.dtype) if gates.device.type == "cpu" else gates.dtype
