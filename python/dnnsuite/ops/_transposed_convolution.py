# SPDX-License-Identifier: MIT
"""Transposed convolutions of images of B models. Forward is the gradient of a convolution's images, backward the
convolution, so both are the operators of this package that convolve; channels last in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .device import on_cpu
from .library import eager, library, tracing

_convolve = library.window_convolution.default
_convolve_backward = library.window_convolution_backward.default
_depthwise = library.depthwise.default
_depthwise_images = library.depthwise_backward_input.default
_depthwise_filters = library.depthwise_backward_weight.default


def _like(x: Tensor, channels: int, sides: Sequence[int]) -> Tensor:
    """Make room for images `[B, N, channels, *sides]`, the channels last in memory."""
    return x.new_empty(*x.shape[:2], *sides, channels).movedim(-1, 2)


def _add_bias(y: Tensor, bias: Tensor | None) -> Tensor:
    return y if bias is None else y.add_(bias[:, None, :, None, None])


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, weight, _, *ctx.steps = inputs
    ctx.save_for_backward(x, weight)


def _by_windows(x: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
    *steps, groups, sides = rest
    room = _like(x, weight.size(2) * groups, sides)  # the images of the convolution: only their shape is read
    return _add_bias(_convolve_backward(x, room, weight, *steps, groups, True, False, False)[0], bias)


def _grad_by_windows(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, weight = ctx.saved_tensors
    *steps, groups, _ = ctx.steps
    needs = ctx.needs_input_grad
    dx = _convolve(grad, weight, None, *steps, groups) if needs[0] else None
    dweight = None
    if needs[1]:
        dweight = _convolve_backward(x, grad, weight, *steps, groups, False, True, False)[1]
    return dx, dweight, grad.sum((1, 3, 4)) if needs[2] else None, *(None for _ in ctx.steps)


def _by_channels(x: Tensor, weight: Tensor, bias: Tensor | None, *steps: Any) -> Tensor:
    """Return rows of channels: of a view that is made in a Function, autograd lets nobody write into the result."""
    *pairs, _, sides = steps
    filters = weight.squeeze(2).movedim(1, -1)
    y = _depthwise_images(x.movedim(2, -1), filters, *sides, *(n for pair in pairs for n in pair))
    return y if bias is None else y.add_(bias[:, None, None, None])


def _grad_by_channels(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, weight = ctx.saved_tensors
    *pairs, _, _ = ctx.steps
    steps = [n for pair in pairs for n in pair]
    needs = ctx.needs_input_grad
    filters = weight.squeeze(2).movedim(1, -1)
    dx = _depthwise(grad, filters, None, *steps).movedim(-1, 2) if needs[0] else None
    dweight = None
    if needs[1]:
        models, height, width, channels = filters.shape
        sums = _depthwise_filters(x.movedim(2, -1), grad, height, width, *steps)
        taps = sums.view(models, height * width + 1, channels)[:, :-1].view(models, height, width, channels)
        dweight = taps.movedim(-1, 1).unsqueeze(2)
    return dx, dweight, grad.sum((1, 2, 3)) if needs[2] else None, *(None for _ in ctx.steps)


def _composition(x: Tensor, weight: Tensor, bias: Tensor | None, *steps: Any) -> Tensor:
    """Compose the result of torch's transposed convolution, model by model."""
    stride, padding, dilation, groups, sides = steps
    ends = zip(sides, x.shape[3:], weight.shape[3:], stride, padding, dilation, strict=True)
    extra = [side - ((n - 1) * s - 2 * p + d * (k - 1) + 1) for side, n, k, s, p, d in ends]
    biases: Any = [None] * len(x) if bias is None else bias.unbind(0)
    # Contiguous: with the channels last torch refuses some gradients of gradients.
    own = zip(x.contiguous().unbind(0), weight.contiguous().unbind(0), biases, strict=True)
    plain: Callable[..., Tensor] = torch.nn.functional.conv_transpose2d
    return torch.stack([plain(*tensors, stride, padding, extra, groups, dilation) for tensors in own])


_eager_windows = eager(_by_windows, _setup, _grad_by_windows, _composition)
_eager_channels = eager(_by_channels, _setup, _grad_by_channels, lambda *args: _composition(*args).movedim(2, -1))


def transposed_convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    sides: Sequence[int],
) -> Tensor:
    """Compute the transposed convolution of x [B, N, I, H, W] with filters [B, I, O / groups, KH, KW] and bias [B, O].

    The result is [B, N, O, *sides]: the gradient with respect to images of size `sides` of their convolution with the
    filters, where x is the gradient of the output. Its channels are last in memory, and those of x and weight should
    be.
    """
    steps = list(stride), list(padding), list(dilation), groups, list(sides)
    return (_composition if tracing() or not on_cpu(x) else _eager_windows)(x, weight, bias, *steps)


def transposed_depthwise(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    sides: Sequence[int],
) -> Tensor:
    """Compute `transposed_convolution` of each channel on its own.

    x is [B, N, C, H, W], and the filters are [B, C, 1, KH, KW].
    """
    steps = list(stride), list(padding), list(dilation), x.size(2), list(sides)
    if tracing() or not on_cpu(x):
        return _composition(x, weight, bias, *steps)
    return _eager_channels(x, weight, bias, *steps).movedim(-1, 2)
