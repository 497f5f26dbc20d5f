# SPDX-License-Identifier: MIT
"""Convolutions of B models: by torch, model by model; as products of the windows that filters see; of single channels;
and transposed ones, whose forward is the gradient of a convolution's images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .device import on_cpu
from .library import differentiable, eager, fake, library, tracing
from .windows import of_sides, output_side

ConvolutionGeometry = tuple[list[int], list[int], list[int], bool, list[int], int]
"""Stride, padding, dilation, transposed, output padding and groups, in the order of `torch.convolution`."""

_convolution_forward = library.convolve_models.default
_convolution_backward = library.convolve_models_backward.default


def _convolution_new_result(x: Tensor, weight: Tensor, bias: Tensor | None, *geometry: Any) -> Tensor:
    own = torch.convolution(x[0], weight[0], None if bias is None else bias[0], *geometry)
    return own.new_empty_strided((len(x), *own.shape), (own.numel(), *own.stride()))


fake("convolve_models", _convolution_new_result)


def _convolution_new_gradients(grad: Tensor, x: Tensor, weight: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    found = torch.empty_like(x), torch.empty_like(weight), x.new_empty(len(x), grad.size(2))
    return tuple(t if needed else x.new_empty(0) for t, needed in zip(found, rest[-3:], strict=True))


fake("convolve_models_backward", _convolution_new_gradients)


def _convolution_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, weight, _, *ctx.geometry = inputs
    ctx.save_for_backward(x, weight)


def _convolution_grad(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    needs = ctx.needs_input_grad[:3]
    found = _convolution_backward(grad, *ctx.saved_tensors, *ctx.geometry, *needs)
    return *(t if needed else None for t, needed in zip(found, needs, strict=True)), *(None for _ in ctx.geometry)


def _convolution_composition(x: Tensor, weight: Tensor, bias: Tensor | None, *geometry: Any) -> Tensor:
    biases: Any = [None] * len(x) if bias is None else bias.unbind(0)
    own = zip(x.unbind(0), weight.unbind(0), biases, strict=True)
    return torch.stack([torch.convolution(*tensors, *geometry) for tensors in own])


_convolution_eager = differentiable(
    _convolution_forward, _convolution_setup, _convolution_grad, _convolution_composition
)


def convolve_models(x: Tensor, weight: Tensor, bias: Tensor | None, geometry: ConvolutionGeometry) -> Tensor:
    """Convolve x [B, N, C, *] of one or more models with the weight [B, O, I, *] and bias [B, O] of each.

    x may be one batch for all models (stride 0 in dimension 0). The result has the same memory format as torch's result
    for one model.
    """
    result: Tensor = _convolution_eager(x, weight, bias, *geometry)
    return result


_window_convolution_forward = library.window_convolution.default
_window_convolution_backward = library.window_convolution_backward.default


def _new_last(like: Tensor, *shape: int) -> Tensor:
    """Make a tensor `[B, N, C, *]` with the channels last in memory."""
    models, samples, channels, *sides = shape
    return like.new_empty(models, samples, *sides, channels).movedim(-1, 2)


def _window_convolution_new_result(x: Tensor, weight: Tensor, bias: Tensor | None, *steps: Any) -> Tensor:
    ends = zip(x.shape[3:], weight.shape[3:], *steps[:3], strict=True)
    return _new_last(x, *x.shape[:2], weight.size(1), *(output_side(*end) for end in ends))


fake("window_convolution", _window_convolution_new_result)


def _window_convolution_new_gradients(grad: Tensor, x: Tensor, weight: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    found = _new_last(x, *x.shape), _new_last(x, *weight.shape), x.new_empty(len(x), weight.size(1))
    return tuple(t if needed else x.new_empty(0) for t, needed in zip(found, rest[-3:], strict=True))


fake("window_convolution_backward", _window_convolution_new_gradients)


def _window_convolution_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, weight, _, *ctx.steps = inputs
    ctx.save_for_backward(x, weight)


def _window_convolution_grad(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    needs = ctx.needs_input_grad[:3]
    found = _window_convolution_backward(grad, *ctx.saved_tensors, *ctx.steps, *needs)
    return *(t if needed else None for t, needed in zip(found, needs, strict=True)), None, None, None, None


def _window_convolution_composition(x: Tensor, weight: Tensor, bias: Tensor | None, *steps: Any) -> Tensor:
    biases: Any = [None] * len(x) if bias is None else bias.unbind(0)
    # Contiguous: with the channels last torch refuses some gradients of gradients, as of a single filter.
    own = zip(x.contiguous().unbind(0), weight.contiguous().unbind(0), biases, strict=True)
    convolve: Any = torch.nn.functional.conv2d if x.dim() == 5 else torch.nn.functional.conv3d
    return torch.stack([convolve(*tensors, *steps) for tensors in own])


_window_convolution_eager = differentiable(
    _window_convolution_forward, _window_convolution_setup, _window_convolution_grad, _window_convolution_composition
)


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
    call = _window_convolution_forward if tracing() else _window_convolution_eager
    result: Tensor = (call if on_cpu(x) else _window_convolution_composition)(x, weight, bias, *steps, groups)
    return result


_depthwise_forward = library.depthwise.default
_backward_input = library.depthwise_backward_input.default
_backward_weight = library.depthwise_backward_weight.default


def _depthwise_new_result(x: Tensor, weight: Tensor, bias: Tensor | None, *steps: int) -> Tensor:
    sizes = (output_side(x.shape[2 + i], weight.shape[1 + i], *steps[i::2]) for i in range(2))
    return x.new_empty(*x.shape[:2], *sizes, x.shape[4])


fake("depthwise", _depthwise_new_result)
fake("depthwise_backward_input", of_sides)
fake(
    "depthwise_backward_weight",
    lambda x, kernel_h, kernel_w: x.new_empty(x.shape[0], (kernel_h * kernel_w + 1) * x.shape[4]),
)


def _depthwise_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, weight, bias, *steps = inputs
    ctx.steps, ctx.has_bias = steps, bias is not None
    ctx.save_for_backward(x, weight)


def _depthwise_grad(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
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


def _depthwise_composition(x: Tensor, weight: Tensor, bias: Tensor | None, *steps: int) -> Tensor:
    """Compose the operator of torch's grouped convolution, the models' channels side by side."""
    models, samples, height, width, channels = x.shape
    image = x.permute(1, 0, 4, 2, 3).reshape(samples, models * channels, height, width)
    filters = weight.permute(0, 3, 1, 2).reshape(models * channels, 1, *weight.shape[1:3])
    own = None if bias is None else bias.reshape(-1)
    y = torch.nn.functional.conv2d(image, filters, own, steps[:2], steps[2:4], steps[4:], models * channels)
    return y.view(samples, models, channels, *y.shape[2:]).permute(1, 0, 3, 4, 2)


_depthwise_eager = differentiable(_depthwise_forward, _depthwise_setup, _depthwise_grad, _depthwise_composition)


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
    result: Tensor = (_depthwise_forward if tracing() else _depthwise_eager)(
        x, weight, bias, *stride, *padding, *dilation
    )
    return result


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


def _transposed_convolution_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
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


def _transposed_convolution_composition(x: Tensor, weight: Tensor, bias: Tensor | None, *steps: Any) -> Tensor:
    """Compose the result of torch's transposed convolution, model by model."""
    stride, padding, dilation, groups, sides = steps
    ends = zip(sides, x.shape[3:], weight.shape[3:], stride, padding, dilation, strict=True)
    extra = [side - ((n - 1) * s - 2 * p + d * (k - 1) + 1) for side, n, k, s, p, d in ends]
    biases: Any = [None] * len(x) if bias is None else bias.unbind(0)
    # Contiguous: with the channels last torch refuses some gradients of gradients.
    own = zip(x.contiguous().unbind(0), weight.contiguous().unbind(0), biases, strict=True)
    plain: Callable[..., Tensor] = torch.nn.functional.conv_transpose2d
    return torch.stack([plain(*tensors, stride, padding, extra, groups, dilation) for tensors in own])


_eager_windows = eager(
    _by_windows, _transposed_convolution_setup, _grad_by_windows, _transposed_convolution_composition
)
_eager_channels = eager(
    _by_channels,
    _transposed_convolution_setup,
    _grad_by_channels,
    lambda *args: _transposed_convolution_composition(*args).movedim(2, -1),
)


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
    return (_transposed_convolution_composition if tracing() or not on_cpu(x) else _eager_windows)(
        x, weight, bias, *steps
    )


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
        return _transposed_convolution_composition(x, weight, bias, *steps)
    return _eager_channels(x, weight, bias, *steps).movedim(-1, 2)
