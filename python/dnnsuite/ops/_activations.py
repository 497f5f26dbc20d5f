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
from .library import applied, below_autograd, differentiable, eager, fake, fakes_like, library, tracing, transforming
from .memory_order import memory_order, way_back

FEWEST_NUMBERS = {"tanh": 2048, "mish": 2048, "gelu_tanh": 4096, "softplus": 8192, "elu": 8192}
"""By curve: numbers of a model below which torch's call costs less."""

_activate = library.activate.default
_activate_backward = library.activate_backward.default


fakes_like("x", "activate", "activate_backward")


def _activate_composition(x: Tensor, curve: str, first: float, second: float) -> Tensor:
    if curve == "softplus":
        return F.softplus(x, first, second)
    if curve == "elu":
        return F.elu(x, first) * second
    if curve == "gelu_tanh":
        return F.gelu(x, approximate="tanh")
    return F.mish(x) if curve == "mish" else torch.tanh(x)


def _activate_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, *ctx.rest = inputs
    ctx.save_for_backward(x)


def _activate_gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return _activate_backward(grad, *ctx.saved_tensors, *ctx.rest), None, None, None


_activate_eager = differentiable(_activate, _activate_setup, _activate_gradient, _activate_composition)


class _Tanh(torch.autograd.Function):
    """Hyperbolic tangent, whose gradient is torch's, of the result: it may be differentiated any number of times."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        with below_autograd():
            y: Tensor = _activate(x, "tanh", 0.0, 0.0)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        gradient: Tensor = torch.ops.aten.tanh_backward(grad, y)
        return gradient


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
    if x.is_contiguous():
        return _called(x, curve, first, second)
    order = memory_order(x)
    laid_out = x.permute(order)
    return _called(laid_out, curve, first, second).permute(way_back(order)) if laid_out.is_contiguous() else None


def _called(x: Tensor, curve: str, first: float, second: float) -> Tensor:
    y: Tensor
    if curve == "tanh" and torch.is_grad_enabled():
        y = _tanh(x)
    else:
        y = _activate_eager(x, curve, first, second)
    return y


_glu = library.glu.default
_glu_backward = library.glu_backward.default


fake("glu", lambda x, dim: x.new_empty([size // 2 if d == dim else size for d, size in enumerate(x.shape)]))
fakes_like("x", "glu_backward")


def _glu_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.rest = inputs[1:]


def _glu_gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return _glu_backward(grad, *ctx.saved_tensors, *ctx.rest), None


_glu_eager = differentiable(_glu, _glu_setup, _glu_gradient, torch.nn.functional.glu)


def glu(x: Tensor, dim: int) -> Tensor | None:
    """Compute a * sigmoid(b), where a and b are the halves of x [B, *] along `dim`, on a CPU.

    The result has the memory format of x. Returns None if x has gaps in memory, or in any other case that torch's
    operator should handle.
    """
    dim %= x.dim()
    if x.dtype not in (torch.float32, torch.float64) or dim == 0 or x.size(dim) % 2:
        return None
    call = _glu if tracing() else _glu_eager
    if x.is_contiguous():
        y: Tensor = call(x, dim)
        return y
    order = memory_order(x)
    laid_out = x.permute(order)
    if not laid_out.is_contiguous():
        return None
    y = call(laid_out, order.index(dim))
    return y.permute(way_back(order))


_prelu = library.prelu.default
_prelu_backward = library.prelu_backward.default


fakes_like("x", "prelu")
fakes_like(("x", "slopes"), "prelu_backward")


def _prelu_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs[:2])
    ctx.rest = inputs[2:]


def _prelu_gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return *_prelu_backward(grad, *ctx.saved_tensors, *ctx.rest), None


def _runs(x: Tensor, slopes: Tensor, inner: int) -> Tensor:
    """Compose `prelu` of torch's functions."""
    runs = x.reshape(len(x), -1, slopes.size(1), inner)
    return torch.where(runs > 0, runs, runs * slopes[:, None, :, None]).reshape(x.shape)


differentiable(_prelu, _prelu_setup, _prelu_gradient, _runs)


def _turned(x: Tensor, last: bool) -> Tensor:
    return x.movedim(2, -1) if last else x


def _prelu_forward(x: Tensor, slopes: Tensor, inner: int, last: bool) -> Tensor:
    y = _prelu(_turned(x, last), slopes, inner)
    return y.movedim(-1, 2) if last else y


def _gradient_of_images(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, slopes = ctx.saved_tensors
    inner, last = ctx.rest
    dx, dslopes = _prelu_backward(_turned(grad, last), _turned(x, last), slopes, inner)
    return dx.movedim(-1, 2) if last else dx, dslopes, None, None


def _prelu_composition(x: Tensor, slopes: Tensor, inner: int, last: bool) -> Tensor:
    shape = (len(x), 1, slopes.size(1), *(1 for _ in x.shape[3:]))
    return torch.where(x > 0, x, x * slopes.view(shape[: x.dim()]))


_prelu_eager = eager(_prelu_forward, _prelu_setup, _gradient_of_images, _prelu_composition)


def prelu(x: Tensor, slopes: Tensor) -> Tensor | None:
    """Return x [B, N, C, *] where it is above zero, else x times `slopes` [B, C] or [B, 1], on a CPU.

    Returns None if x has gaps in memory.
    """
    last = not x.is_contiguous()
    if x.dim() < 3 or not x.is_cpu or (last and not x.movedim(2, -1).is_contiguous()):
        return None
    inner = x.shape[2:].numel() if slopes.size(1) == 1 else 1 if last else x.shape[3:].numel()
    y: Tensor = (_prelu_forward if tracing() else _prelu_eager)(x, slopes, inner, last)
    return y


_softmax = library.short_softmax.default
_softmax_backward = library.short_softmax_backward.default


fakes_like("x", "short_softmax")
fakes_like("y", "short_softmax_backward")


def _softmax_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(output)
    ctx.log = inputs[1]


def _softmax_gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return _softmax_backward(grad, *ctx.saved_tensors, ctx.log), None


def _softmax_composition(x: Tensor, log: bool) -> Tensor:
    return torch.log_softmax(x, -1) if log else torch.softmax(x, -1)


_softmax_eager = differentiable(_softmax, _softmax_setup, _softmax_gradient, _softmax_composition)


def short_softmax(x: Tensor, log: bool = False) -> Tensor:
    """Compute the softmax of x [B, ..., D], or its logarithm, along rows of at most 32 elements, on a CPU."""
    y: Tensor = (_softmax if tracing() else _softmax_eager)(x, log)
    return y


LONG_ROW = 128
"""Numbers of a row from which a factor of it pays: the sum of each row is a chain of its own."""

_scaled = library.scaled.default
_scale_backward = library.scaled_backward.default


fakes_like("x", "scaled")
fakes_like(("x", "factors"), "scaled_backward")


def _scale_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs[:2])
    ctx.rest = inputs[2:]


def _scale_gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return *_scale_backward(grad, *ctx.saved_tensors, *ctx.rest), None


def _of_groups(x: Tensor, factors: Tensor, by_rows: bool) -> Tensor:
    """Compose the operator of torch's product."""
    return x * factors.unsqueeze(2 if by_rows else 1)


differentiable(_scaled, _scale_setup, _scale_gradient, _of_groups)


def _scale_forward(x: Tensor, factors: Tensor, order: list[int], sizes: tuple[int, int, int], by_rows: bool) -> Tensor:
    laid_out = x.permute(order)
    groups = factors.permute(order).reshape(sizes[0], sizes[1 if by_rows else 2])
    return _scaled(laid_out.view(sizes), groups, by_rows).view(laid_out.shape).permute(way_back(order))


def _gradient_of_products(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, factors = ctx.saved_tensors
    order, sizes, by_rows = ctx.rest
    laid_out, own = x.permute(order), factors.permute(order)
    groups = own.reshape(sizes[0], sizes[1 if by_rows else 2])
    dx, sums = _scale_backward(grad.permute(order).reshape(sizes), laid_out.view(sizes), groups, by_rows)
    back = way_back(order)
    return dx.view(laid_out.shape).permute(back), sums.view(own.shape).permute(back), None, None, None


def _scale_composition(x: Tensor, factors: Tensor, *_: Any) -> Tensor:
    return x * factors


_scale_eager = eager(_scale_forward, _scale_setup, _gradient_of_products, _scale_composition)


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
    order = memory_order(x)
    if not x.permute(order).is_contiguous():
        return None
    found = _groups(x, factors, order)
    if found is None or prod(found[0]) == factors.numel():
        return None
    y: Tensor = (_scale_forward if tracing() else _scale_eager)(x, factors, order, *found)
    return y
