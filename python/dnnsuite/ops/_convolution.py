# SPDX-License-Identifier: MIT
"""Convolutions of B models: by torch, model by model; as products of the windows that filters see; of single channels;
and transposed ones, whose forward is the gradient of a convolution's images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .device import on_cpu
from .library import differentiable, eager, fake, library, saves, tracing
from .shared import Maybe
from .windows import Sizes, of_sides, output_side

ConvolutionGeometry = tuple[list[int], list[int], list[int], bool, list[int], int]
"""Stride, padding, dilation, transposed, output padding and groups, in the order of `torch.convolution`."""


def _new_result(x: Tensor, weight: Tensor, bias: Tensor | None, *geometry: Any) -> Tensor:
    own = torch.convolution(x[0], weight[0], None if bias is None else bias[0], *geometry)
    return own.new_empty_strided((len(x), *own.shape), (own.numel(), *own.stride()))


def _new_gradients(grad: Tensor, x: Tensor, weight: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    found = torch.empty_like(x), torch.empty_like(weight), x.new_empty(len(x), grad.size(2))
    return tuple(t if needed else x.new_empty(0) for t, needed in zip(found, rest[-3:], strict=True))


fake("convolve_models", _new_result)
fake("convolve_models_backward", _new_gradients)


_setup = saves(0, 1, steps=slice(3, None))


def _grad_by(backward: Callable[..., Any]) -> Callable[..., tuple[Any, ...]]:
    """Make the gradient of a convolution, of an operator that computes those which are needed."""

    def grad_of(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        needs = ctx.needs_input_grad[:3]
        found = backward(grad, *ctx.saved_tensors, *ctx.steps, *needs)
        return *(t if needed else None for t, needed in zip(found, needs, strict=True)), *(None for _ in ctx.steps)

    return grad_of


def each_convolved(x: Tensor, weight: Tensor, bias: Tensor | None, *geometry: Any) -> Tensor:
    """Compose a convolution of torch's, model by model; `geometry` as for `torch.convolution`."""
    biases: Any = [None] * len(x) if bias is None else bias.unbind(0)
    own = zip(x.unbind(0), weight.unbind(0), biases, strict=True)
    return torch.stack([torch.convolution(*tensors, *geometry) for tensors in own])


_models = differentiable(
    library.convolve_models.default, _setup, _grad_by(library.convolve_models_backward.default), each_convolved
)


def convolve_models(x: Tensor, weight: Tensor, bias: Tensor | None, geometry: ConvolutionGeometry) -> Tensor:
    """Convolve x [B, N, C, *] of one or more models with the weight [B, O, I, *] and bias [B, O] of each.

    x may be one batch for all models (stride 0 in dimension 0). The result has the same memory format as torch's result
    for one model.
    """
    return _models(x, weight, bias, *geometry)


def _new_last(like: Tensor, *shape: int) -> Tensor:
    """Make a tensor `[B, N, C, *]` with the channels last in memory."""
    models, samples, channels, *sides = shape
    return like.new_empty(models, samples, *sides, channels).movedim(-1, 2)


def _new_windows(x: Tensor, weight: Tensor, bias: Tensor | None, *steps: Any) -> Tensor:
    ends = zip(x.shape[3:], weight.shape[3:], *steps[:3], strict=True)
    return _new_last(x, *x.shape[:2], weight.size(1), *(output_side(*end) for end in ends))


def _new_window_gradients(grad: Tensor, x: Tensor, weight: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    found = _new_last(x, *x.shape), _new_last(x, *weight.shape), x.new_empty(len(x), weight.size(1))
    return tuple(t if needed else x.new_empty(0) for t, needed in zip(found, rest[-3:], strict=True))


fake("window_convolution", _new_windows)
fake("window_convolution_backward", _new_window_gradients)


def _windows_composition(x: Tensor, weight: Tensor, bias: Tensor | None, *steps: Any) -> Tensor:
    # Contiguous: with the channels last torch refuses some gradients of gradients, as of a single filter.
    *pairs, groups = steps
    return each_convolved(x.contiguous(), weight.contiguous(), bias, *pairs, False, [0] * (x.dim() - 3), groups)


_convolve, _convolve_backward = library.window_convolution.default, library.window_convolution_backward.default
_windows = differentiable(_convolve, _setup, _grad_by(_convolve_backward), _windows_composition)


def window_convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
) -> Tensor:
    """Convolve x [B, N, I, H, W] with filters [B, O, I / groups, KH, KW] and bias [B, O].

    The result is [B, N, O, OH, OW]. Volumes have three sides instead of two, and `stride`, `padding` and `dilation` of
    three numbers each. x and weight should have their channels last in memory, as the result does, otherwise they are
    copied. x may be one batch for all models (stride 0 in dimension 0).
    """
    steps = list(stride), list(padding), list(dilation)
    return (_windows if on_cpu(x) else _windows_composition)(x, weight, bias, *steps, groups)


def _new_depthwise(x: Tensor, weight: Tensor, bias: Tensor | None, *steps: int) -> Tensor:
    sizes = (output_side(x.shape[2 + i], weight.shape[1 + i], *steps[i::2]) for i in range(2))
    return x.new_empty(*x.shape[:2], *sizes, x.shape[4])


fake("depthwise", _new_depthwise)
fake("depthwise_backward_input", of_sides)
fake(
    "depthwise_backward_weight",
    lambda x, kernel_h, kernel_w: x.new_empty(x.shape[0], (kernel_h * kernel_w + 1) * x.shape[4]),
)


def _depthwise_grad(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, weight = ctx.saved_tensors
    needs = ctx.needs_input_grad
    models, kernel_h, kernel_w, channels = weight.shape
    dx = _depthwise_images(grad, weight, *x.shape[2:4], *ctx.steps) if needs[0] else None
    dweight = dbias = None
    if needs[1] or needs[2]:
        sums = _depthwise_filters(grad, x, kernel_h, kernel_w, *ctx.steps)
        sums = sums.view(models, kernel_h * kernel_w + 1, channels)
        dweight = sums[:, :-1].reshape(weight.shape) if needs[1] else None
        dbias = sums[:, -1] if needs[2] else None
    return dx, dweight, dbias, *(None for _ in ctx.steps)


def _depthwise_composition(x: Tensor, weight: Tensor, bias: Tensor | None, *steps: int) -> Tensor:
    """Compose the operator of torch's grouped convolution, the models' channels side by side."""
    models, samples, height, width, channels = x.shape
    image = x.permute(1, 0, 4, 2, 3).reshape(samples, models * channels, height, width)
    filters = weight.permute(0, 3, 1, 2).reshape(models * channels, 1, *weight.shape[1:3])
    own = None if bias is None else bias.reshape(-1)
    y = torch.nn.functional.conv2d(image, filters, own, steps[:2], steps[2:4], steps[4:], models * channels)
    return y.view(samples, models, channels, *y.shape[2:]).permute(1, 0, 3, 4, 2)


_channels, _depthwise_images = library.depthwise.default, library.depthwise_backward_input.default
_depthwise_filters = library.depthwise_backward_weight.default
_depthwise = differentiable(_channels, _setup, _depthwise_grad, _depthwise_composition)


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
    return _depthwise(x, weight, bias, *stride, *padding, *dilation)


def _by_windows(x: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
    *steps, groups, sides = rest
    room = _new_last(x, *x.shape[:2], weight.size(2) * groups, *sides)  # the images: only their shape is read
    y = _convolve_backward(x, room, weight, *steps, groups, True, False, False)[0]
    return y if bias is None else y.add_(bias[:, None, :, None, None])


def _grad_by_windows(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, weight = ctx.saved_tensors
    *steps, groups, _ = ctx.steps
    needs = ctx.needs_input_grad
    dx = _convolve(grad, weight, None, *steps, groups) if needs[0] else None
    dweight = _convolve_backward(x, grad, weight, *steps, groups, False, True, False)[1] if needs[1] else None
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
    dx = _channels(grad, filters, None, *steps).movedim(-1, 2) if needs[0] else None
    dweight = None
    if needs[1]:
        models, height, width, channels = filters.shape
        sums = _depthwise_filters(x.movedim(2, -1), grad, height, width, *steps)
        taps = sums.view(models, height * width + 1, channels)[:, :-1].view(models, height, width, channels)
        dweight = taps.movedim(-1, 1).unsqueeze(2)
    return dx, dweight, grad.sum((1, 2, 3)) if needs[2] else None, *(None for _ in ctx.steps)


def _transposed(x: Tensor, weight: Tensor, bias: Tensor | None, *steps: Any) -> Tensor:
    """Compose the result of torch's transposed convolution, model by model."""
    stride, padding, dilation, groups, sides = steps
    ends = zip(sides, x.shape[3:], weight.shape[3:], stride, padding, dilation, strict=True)
    extra = [side - ((n - 1) * s - 2 * p + d * (k - 1) + 1) for side, n, k, s, p, d in ends]
    # Contiguous: with the channels last torch refuses some gradients of gradients.
    geometry = stride, padding, dilation, True, extra, groups
    return each_convolved(x.contiguous(), weight.contiguous(), bias, *geometry)


_eager_windows = eager(_by_windows, _setup, _grad_by_windows, _transposed)
_eager_channels = eager(_by_channels, _setup, _grad_by_channels, lambda *args: _transposed(*args).movedim(2, -1))


def transposed_convolution(
    x: Tensor, weight: Tensor, bias: Maybe, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int, sides: Sizes
) -> Tensor:
    """Compute the transposed convolution of x [B, N, I, H, W] with filters [B, I, O / groups, KH, KW] and bias [B, O].

    The result is [B, N, O, *sides]: the gradient with respect to images of size `sides` of their convolution with the
    filters, where x is the gradient of the output. Its channels are last in memory, and those of x and weight should
    be.
    """
    steps = list(stride), list(padding), list(dilation), groups, list(sides)
    return (_transposed if tracing() or not on_cpu(x) else _eager_windows)(x, weight, bias, *steps)


def transposed_depthwise(
    x: Tensor, weight: Tensor, bias: Maybe, stride: Sizes, padding: Sizes, dilation: Sizes, sides: Sizes
) -> Tensor:
    """Compute `transposed_convolution` of each channel on its own.

    x is [B, N, C, H, W], and the filters are [B, C, 1, KH, KW].
    """
    steps = list(stride), list(padding), list(dilation), x.size(2), list(sides)
    if tracing() or not on_cpu(x):
        return _transposed(x, weight, bias, *steps)
    return _eager_channels(x, weight, bias, *steps).movedim(-1, 2)
