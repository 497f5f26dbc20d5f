# SPDX-License-Identifier: MIT
"""Pooling of images, channels last in memory: maximum or mean of each window; and the maximum over a dimension."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .device import on_cpu
from .library import applied, below_autograd, cuda_kernels, differentiable, fake, library, tracing, transforming
from .memory_order import memory_order, way_back
from .windows import of_sides


def places_of(x: Tensor, shape: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Make tensors for maxima of this shape and for their places."""
    return x.new_empty(shape), x.new_empty(shape, dtype=torch.int64)


fake("max_over", lambda x, dim: places_of(x, [1 if d == dim else size for d, size in enumerate(x.shape)]))


def _over_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, ctx.dim = inputs
    ctx.shape = x.shape
    ctx.save_for_backward(output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _over_grad(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Any, ...]:
    if grad is None:
        return None, None
    (indices,) = ctx.saved_tensors
    return grad.new_zeros(ctx.shape).scatter_(ctx.dim, indices, grad), None


def _over_composition(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    values, indices = torch.max(x, dim, keepdim=True)
    return values, indices


_max_over = differentiable(library.max_over.default, _over_setup, _over_grad, _over_composition)


def max_over(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Compute the maximum of x [B, ...] over dimension `dim` (1 or more, kept with size 1), and its index.

    As in torch.max the index is that of the first of equal elements, and NaN counts as the largest. x may have any
    memory format.
    """
    if x.numel() == 0 or (x.is_cuda and not cuda_kernels):
        return _over_composition(x, dim)
    if x.is_contiguous():
        return _max_over(x, dim)
    order = memory_order(x)
    back = way_back(order)
    values, indices = _max_over(x.permute(order), order.index(dim))
    return values.permute(back), indices.permute(back)


MOST_TAPS = 255
"""Largest number of pixels in a window of `max_pool`: the place of the maximum is stored in a byte."""

NO_TAP = 255
"""Tap of a window whose result has no gradient."""

_largest, _largest_backward = library.max_pool.default, library.max_pool_backward.default


def _windows(n: int, *steps: int) -> int:
    """Count the windows along a dimension; `steps` are kernel, stride, padding, dilation, and 1 if the last window may
    reach beyond."""
    kernel, stride, padding, dilation, ceil_mode = steps
    found = (n + 2 * padding - dilation * (kernel - 1) - 1 + (stride - 1 if ceil_mode else 0)) // stride + 1
    return found - 1 if ceil_mode and (found - 1) * stride >= n + padding else found


def _new_means(x: Tensor, *steps: Any) -> Tensor:
    sizes = [_windows(x.shape[2 + i], *steps[i:6:2], 1, steps[6]) for i in range(2)]
    return x.new_empty(*x.shape[:2], *sizes, x.shape[4])


def _new_maxima(x: Tensor, *steps: Any) -> tuple[Tensor, Tensor]:
    sizes = [_windows(x.shape[2 + i], *steps[i:8:2], steps[8]) for i in range(2)]
    y = x.new_empty(*x.shape[:2], *sizes, x.shape[4])
    return y, torch.empty_like(y, dtype=torch.uint8)


fake("max_pool", _new_maxima)
fake("avg_pool", _new_means)
fake("max_pool_backward", of_sides)
fake("avg_pool_backward", of_sides)


def _setup_largest(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, *ctx.steps = inputs
    ctx.sides = x.shape[2:4]
    ctx.save_for_backward(output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _grad_largest(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Any, ...]:
    rest = (None for _ in ctx.steps)
    if grad is None:
        return None, *rest
    (taps,) = ctx.saved_tensors
    spread = _spread if torch.is_grad_enabled() else _largest_backward
    return spread(grad, taps, *ctx.sides, *ctx.steps[:8]), *rest


def _spread(grad: Tensor, taps: Tensor, height: int, width: int, *steps: int) -> Tensor:
    """Compose `max_pool_backward` of torch's functions, so that torch can differentiate it; it is linear in `grad`."""
    kernel_w = steps[1]
    stride, padding, dilation = (steps[i : i + 2] for i in (2, 4, 6))
    tap, none = taps.long(), taps == NO_TAP
    rows, columns = (torch.arange(size, device=grad.device) for size in grad.shape[2:4])
    y = (rows * stride[0] - padding[0])[:, None, None] + tap // kernel_w * dilation[0]
    x = (columns * stride[1] - padding[1])[:, None] + tap % kernel_w * dilation[1]
    pixel = torch.where(none, 0, y * width + x).flatten(2, 3)
    zeros = grad.new_zeros(*grad.shape[:2], height * width, grad.shape[4])
    return zeros.scatter_add(2, pixel, grad.masked_fill(none, 0).flatten(2, 3)).unflatten(2, (height, width))


class _Largest(torch.autograd.Function):
    """Differentiable maximum that does not save x: gradients need the taps only."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        with below_autograd():
            output = _largest(*args)
        _setup_largest(ctx, args, output)
        return output

    backward = staticmethod(_grad_largest)


_largest_with_gradient = applied(_Largest)

torch.library.register_autograd(_largest.name(), _grad_largest, setup_context=_setup_largest)


def _maxima(*args: Any) -> Any:
    if tracing():
        return _largest(*args)
    if transforming():
        return (_compose_largest(*args),)
    if torch.is_grad_enabled():
        return _largest_with_gradient(*args)
    with below_autograd():
        return _largest(*args)


def _setup_mean(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, *ctx.steps = inputs
    ctx.sides = x.shape[2:4]


def _grad_mean(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    steps = ctx.steps
    return library.avg_pool_backward.default(grad, *ctx.sides, *steps[:6], *steps[7:]), *(None for _ in steps)


def _over_images(function: Callable[[Tensor], Tensor], x: Tensor, planes: bool = False) -> Tensor:
    """Apply torch's `function` of [N, C, H, W] to x [B, N, H, W, C]; with `planes` the channels are not last for it."""
    images = x.reshape(-1, *x.shape[2:]).movedim(-1, 1)
    y = function(images.clone(memory_format=torch.contiguous_format) if planes else images).movedim(1, -1)
    return y.reshape(*x.shape[:2], *y.shape[1:])


def _compose_largest(x: Tensor, *steps: Any) -> Tensor:
    kernel, stride, padding, dilation, (ceil_mode, relu) = (steps[i : i + 2] for i in range(0, 10, 2))
    return _over_images(
        lambda t: F.max_pool2d(F.relu(t) if relu else t, kernel, stride, padding, dilation, ceil_mode), x
    )


def _compose_mean(x: Tensor, *steps: Any) -> Tensor:
    kernel, stride, padding = (steps[i : i + 2] for i in range(0, 6, 2))
    ceil_mode, count_include_pad, divisor = steps[6:]
    # With padding torch 2.11's gradient of images with channels last is wrong on a GPU; one channel is first and last.
    beyond = x.is_cuda and any(padding)
    return _over_images(
        lambda t: F.avg_pool2d(t, kernel, stride, padding, ceil_mode, count_include_pad, divisor or None), x, beyond
    )


_mean = differentiable(library.avg_pool.default, _setup_mean, _grad_mean, _compose_mean)


def max_pool(
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] | None = None,
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    ceil_mode: bool = False,
    activation: str = "none",
) -> Tensor:
    """Compute the maximum of each window of x [B, N, H, W, C]; the result is [B, N, OH, OW, C].

    As in torch, padding is never the maximum, the gradient goes to the first of equal elements, and NaN counts as the
    largest.

    Args:
        kernel: height and width of the window, at most `MOST_TAPS` pixels in all.
        stride: distance between windows; by default the size of the window.
        activation: 'none', or 'relu' for the maximum of relu(x), in one pass in each direction.
    """
    steps = (*kernel, *(stride or kernel), *padding, *dilation, ceil_mode, activation == "relu")
    if x.numel() == 0 or not on_cpu(x):
        return _compose_largest(x, *steps)
    return _maxima(x, *steps)[0]


def max_pool_with_indices(
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] | None = None,
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    ceil_mode: bool = False,
    activation: str = "none",
) -> tuple[Tensor, Tensor]:
    """Compute `max_pool(x, ...)`, and the position of each maximum in its plane.

    Positions are int64 [B, N, OH, OW, C], each row * W + column. x must be on the CPU and not empty; 'relu' works only
    without padding.
    """
    steps = (*kernel, *(stride or kernel), *padding, *dilation, ceil_mode, activation == "relu")
    y, taps = _maxima(x, *steps)
    return y, _places(taps, x.size(3), steps)


def _places(taps: Tensor, width: int, steps: Sequence[Any]) -> Tensor:
    """Convert taps [B, N, OH, OW, C] to places in a plane of this `width`."""
    kernel, stride, padding, dilation = (steps[i : i + 2] for i in (0, 2, 4, 6))
    rows, columns = (torch.arange(size, device=taps.device) for size in taps.shape[2:4])
    first = (rows * stride[0] - padding[0])[:, None] * width + columns * stride[1] - padding[1]
    down, across = (torch.arange(size, device=taps.device) for size in kernel)
    from_first = (down * (dilation[0] * width))[:, None] + across * dilation[1]
    # A window without a tap has zeros, after a ReLU: its maximum is the first pixel.
    from_first = F.pad(from_first.flatten(), (0, NO_TAP + 1 - from_first.numel()))
    return from_first.index_select(0, taps.flatten().int()).view(taps.shape).add_(first[:, :, None])


def avg_pool(
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] | None = None,
    padding: Sequence[int] = (0, 0),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: int = 0,
) -> Tensor:
    """Compute the mean of each window of x [B, N, H, W, C]; the result is [B, N, OH, OW, C].

    Args:
        kernel: height and width of the window.
        stride: distance between windows; by default the size of the window.
        padding: pixels of zeros on each side.
        ceil_mode: True rounds the size of the result up.
        count_include_pad: True counts the zeros of the padding as pixels.
        divisor: if it is not 0, sums are divided by it instead of by the number of pixels.
    """
    steps = (*kernel, *(stride or kernel), *padding, ceil_mode, count_include_pad, divisor)
    return (_compose_mean if x.numel() == 0 or not on_cpu(x) else _mean)(x, *steps)
