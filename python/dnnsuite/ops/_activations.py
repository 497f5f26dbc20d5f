# SPDX-License-Identifier: MIT
"""Activations that torch computes slowly on a CPU, and products with factors that rows or columns share.

tanh takes ten times as long there as a sigmoid; a softmax of few numbers begins each row anew; the gradients of a gate
or of a product with shared factors are several passes of torch's functions, and one here.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .device import on_cpu
from .library import (
    applied,
    below_autograd,
    differentiable,
    eager,
    fake,
    fakes_like,
    library,
    of_inputs,
    tracing,
    transforming,
)
from .memory_order import packed, way_back

FEWEST_NUMBERS = {"tanh": 2048, "mish": 2048, "gelu_tanh": 4096, "softplus": 8192, "elu": 8192}
"""By curve: numbers of a model below which torch's call costs less."""

fakes_like("x", "activate", "activate_backward", "glu_backward", "prelu", "scaled", "short_softmax")
fakes_like("y", "short_softmax_backward")
fakes_like(("x", "slopes"), "prelu_backward")
fakes_like(("x", "factors"), "scaled_backward")
fake("glu", lambda x, dim: x.new_empty([size // 2 if d == dim else size for d, size in enumerate(x.shape)]))


def _curve(x: Tensor, curve: str, first: float, second: float) -> Tensor:
    """Compose `activate` of torch's functions."""
    if curve == "softplus":
        return F.softplus(x, first, second)
    if curve == "elu":
        return F.elu(x, first) * second
    if curve == "gelu_tanh":
        return F.gelu(x, approximate="tanh")
    return F.mish(x) if curve == "mish" else torch.tanh(x)


_activate = differentiable(library.activate.default, *of_inputs(library.activate_backward.default), _curve)


class _Tanh(torch.autograd.Function):
    """Hyperbolic tangent, whose gradient is torch's, of the result: it may be differentiated any number of times."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        with below_autograd():
            y = library.activate.default(x, "tanh", 0.0, 0.0)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return torch.ops.aten.tanh_backward(grad, *ctx.saved_tensors)


_tanh = applied(_Tanh)


def activate(x: Tensor, curve: str, first: float = 0.0, second: float = 0.0) -> Tensor | None:
    """Compute an activation of x [B, ...], float32 on a CPU; None for what torch's own function serves.

    Args:
        curve: 'tanh', 'gelu_tanh', 'mish', 'softplus' with beta `first` and threshold `second`, or 'elu' with the
            factor `first` below 0 and the scale `second`.
    """
    if x.dtype != torch.float32 or not on_cpu(x) or x.numel() < FEWEST_NUMBERS[curve] * len(x):
        return None
    if tracing() or transforming() or torch.is_autocast_enabled("cpu"):
        return None
    if not x.is_contiguous():
        found = packed(x)
        y = None if found is None else activate(found[0], curve, first, second)
        return None if found is None or y is None else y.permute(way_back(found[1]))
    return _tanh(x) if curve == "tanh" and torch.is_grad_enabled() else _activate(x, curve, first, second)


_glu = differentiable(library.glu.default, *of_inputs(library.glu_backward.default), F.glu)


def glu(x: Tensor, dim: int) -> Tensor | None:
    """Compute a * sigmoid(b), where a and b are the halves of x [B, *] along `dim`, on a CPU.

    The result has the memory format of x. Returns None if x has gaps in memory, or in any other case that torch's
    operator should handle.
    """
    dim %= x.dim()
    if x.dtype not in (torch.float32, torch.float64) or dim == 0 or x.size(dim) % 2:
        return None
    if x.is_contiguous():
        return _glu(x, dim)
    found = packed(x)
    return None if found is None else _glu(found[0], found[1].index(dim)).permute(way_back(found[1]))


_prelu, _prelu_backward = library.prelu.default, library.prelu_backward.default


def _runs(x: Tensor, slopes: Tensor, inner: int) -> Tensor:
    """Compose `prelu` of torch's functions."""
    runs = x.reshape(len(x), -1, slopes.size(1), inner)
    return torch.where(runs > 0, runs, runs * slopes[:, None, :, None]).reshape(x.shape)


differentiable(_prelu, *of_inputs(_prelu_backward, 2), _runs)


def _turned(x: Tensor, last: bool) -> Tensor:
    return x.movedim(2, -1) if last else x


def _prelu_forward(x: Tensor, slopes: Tensor, inner: int, last: bool) -> Tensor:
    y = _prelu(_turned(x, last), slopes, inner)
    return y.movedim(-1, 2) if last else y


def _prelu_gradient(grad: Tensor, x: Tensor, slopes: Tensor, inner: int, last: bool) -> tuple[Tensor, Tensor]:
    dx, dslopes = _prelu_backward(_turned(grad, last), _turned(x, last), slopes, inner)
    return dx.movedim(-1, 2) if last else dx, dslopes


def _prelu_composition(x: Tensor, slopes: Tensor, inner: int, last: bool) -> Tensor:
    shape = (len(x), 1, slopes.size(1), *(1 for _ in x.shape[3:]))
    return torch.where(x > 0, x, x * slopes.view(shape[: x.dim()]))


_prelu_images = eager(_prelu_forward, *of_inputs(_prelu_gradient, 2), _prelu_composition, registered=True)


def prelu(x: Tensor, slopes: Tensor) -> Tensor | None:
    """Return x [B, N, C, *] where it is above zero, else x times `slopes` [B, C] or [B, 1], on a CPU.

    Returns None if x has gaps in memory.
    """
    last = not x.is_contiguous()
    if x.dim() < 3 or not x.is_cpu or (last and not x.movedim(2, -1).is_contiguous()):
        return None
    inner = x.shape[2:].numel() if slopes.size(1) == 1 else 1 if last else x.shape[3:].numel()
    return _prelu_images(x, slopes, inner, last)


def _softmax_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(output)
    ctx.log = inputs[1]


def _softmax_gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return library.short_softmax_backward.default(grad, *ctx.saved_tensors, ctx.log), None


def _softmax_composition(x: Tensor, log: bool) -> Tensor:
    return torch.log_softmax(x, -1) if log else torch.softmax(x, -1)


_softmax = differentiable(library.short_softmax.default, _softmax_setup, _softmax_gradient, _softmax_composition)


def short_softmax(x: Tensor, log: bool = False) -> Tensor:
    """Compute the softmax of x [B, ..., D], or its logarithm, along rows of at most 32 elements, on a CPU."""
    return _softmax(x, log)


LONG_ROW = 128
"""Numbers of a row from which a factor of it pays: the sum of each row is a chain of its own."""

_scaled, _scaled_backward = library.scaled.default, library.scaled_backward.default


def _of_groups(x: Tensor, factors: Tensor, by_rows: bool) -> Tensor:
    """Compose the operator of torch's product."""
    return x * factors.unsqueeze(2 if by_rows else 1)


differentiable(_scaled, *of_inputs(_scaled_backward, 2), _of_groups)


def _scaled_forward(x: Tensor, factors: Tensor, order: list[int], sizes: tuple[int, int, int], by_rows: bool) -> Tensor:
    laid_out = x.permute(order)
    groups = factors.permute(order).reshape(sizes[0], sizes[1 if by_rows else 2])
    return _scaled(laid_out.view(sizes), groups, by_rows).view(laid_out.shape).permute(way_back(order))


def _scaled_gradient(
    grad: Tensor, x: Tensor, factors: Tensor, order: list[int], sizes: tuple[int, int, int], by_rows: bool
) -> tuple[Tensor, Tensor]:
    laid_out, own = x.permute(order), factors.permute(order)
    groups = own.reshape(sizes[0], sizes[1 if by_rows else 2])
    dx, sums = _scaled_backward(grad.permute(order).reshape(sizes), laid_out.view(sizes), groups, by_rows)
    back = way_back(order)
    return dx.view(laid_out.shape).permute(back), sums.view(own.shape).permute(back)


_scaled_images = eager(
    _scaled_forward, *of_inputs(_scaled_gradient, 2), lambda x, factors, *_: x * factors, registered=True
)


def _groups(x: Tensor, factors: Tensor, order: list[int]) -> tuple[tuple[int, int, int], bool] | None:
    """Return the sizes of groups, rows and columns in memory, and True if it is the rows that have factors; None if it
    is neither of both."""
    shared: list[bool] = []  # for each run of dimensions: the numbers along it share a factor
    sizes: list[int] = []
    for dim in order:
        size = x.size(dim)
        if size == 1 and dim != 0:
            continue
        alike = dim != 0 and factors.size(dim) == 1
        if dim == 0 or shared[-1] != alike:
            shared.append(alike)
            sizes.append(size)
        else:
            sizes[-1] *= size
    if shared == [False, True, False]:
        return (sizes[0], sizes[1], sizes[2]), False
    if shared == [False, True] and sizes[1] >= LONG_ROW:
        return (x.size(0), sizes[0] // x.size(0), sizes[1]), True
    return None


def scaled(x: Tensor, factors: Tensor) -> Tensor | None:
    """Compute x * factors on a CPU, for x [B, *] and factors [B, *] whose size is 1 in some dimensions.

    Returns None if x has gaps in memory, or if the factors do not lie along rows or columns of x.
    """
    if x.dim() != factors.dim() or x.dtype != factors.dtype or x.dtype not in (torch.float32, torch.float64):
        return None
    known = on_cpu(x) and on_cpu(factors) and factors.size(0) == x.size(0) and x.numel() > 0
    if not known or any(n not in (1, m) for n, m in zip(factors.shape, x.shape, strict=True)):
        return None
    dense = packed(x)
    found = None if dense is None else _groups(x, factors, dense[1])
    if dense is None or found is None or prod(found[0]) == factors.numel():
        return None
    return _scaled_images(x, factors, dense[1], *found)
