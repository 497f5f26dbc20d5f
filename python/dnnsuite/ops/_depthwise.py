# SPDX-License-Identifier: MIT
"""Depthwise convolution of images: one filter per channel and model; channels last in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .library import differentiable, fake, library, tracing
from .windows import of_sides, output_side

_forward = library.depthwise.default
_backward_input = library.depthwise_backward_input.default
_backward_weight = library.depthwise_backward_weight.default


def _new_result(x: Tensor, weight: Tensor, bias: Tensor | None, *steps: int) -> Tensor:
    sizes = (output_side(x.shape[2 + i], weight.shape[1 + i], *steps[i::2]) for i in range(2))
    return x.new_empty(*x.shape[:2], *sizes, x.shape[4])


fake("depthwise", _new_result)
fake("depthwise_backward_input", of_sides)
fake(
    "depthwise_backward_weight",
    lambda x, kernel_h, kernel_w: x.new_empty(x.shape[0], (kernel_h * kernel_w + 1) * x.shape[4]),
)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, weight, bias, *steps = inputs
    ctx.steps, ctx.has_bias = steps, bias is not None
    ctx.save_for_backward(x, weight)


def _grad(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, weight = ctx.saved_tensors
    needs = ctx.needs_input_grad
    models, kernel_h, kernel_w, channels = weight.shape
    dx = _backward_input(grad, weight, *x.shape[2:4], *ctx.steps) if needs[0] else None
    dweight = dbias = None
    if needs[1] or needs[2]:
        sums = _backward_weight(grad, x, kernel_h, kernel_w, *ctx.steps).view(models, kernel_h * kernel_w + 1, channels)
        dweight = sums[:, :-1].reshape(weight.shape) if needs[1] else None
        dbias = sums[:, -1] if ctx.has_bias else None
    return dx, dweight, dbias, *(None for _ in ctx.steps)


def _composition(x: Tensor, weight: Tensor, bias: Tensor | None, *steps: int) -> Tensor:
    """Compose the operator of torch's grouped convolution, the models' channels side by side."""
    models, samples, height, width, channels = x.shape
    image = x.permute(1, 0, 4, 2, 3).reshape(samples, models * channels, height, width)
    filters = weight.permute(0, 3, 1, 2).reshape(models * channels, 1, *weight.shape[1:3])
    own = None if bias is None else bias.reshape(-1)
    y = torch.nn.functional.conv2d(image, filters, own, steps[:2], steps[2:4], steps[4:], models * channels)
    return y.view(samples, models, channels, *y.shape[2:]).permute(1, 0, 3, 4, 2)


_eager = differentiable(_forward, _setup, _grad, _composition)


def depthwise(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
) -> Tensor:
    """Convolve each channel of x [B, N, H, W, C] with its own filter: weight [B, KH, KW, C], bias [B, C].

    x may be one batch for all models (stride 0 in dimension 0). The result is [B, N, OH, OW, C].
    """
    result: Tensor = (_forward if tracing() else _eager)(x, weight, bias, *stride, *padding, *dilation)
    return result
