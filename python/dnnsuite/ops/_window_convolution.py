# SPDX-License-Identifier: MIT
"""Convolutions of B models as products of the windows that filters see, in one call.

A library prepares each convolution: it looks up a kernel and rearranges filters. For small ones that is most of their
time (`benchmarks/ops/bench_convolution.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .device import on_cpu
from .library import differentiable, fake, library, tracing
from .windows import output_side

_forward = library.window_convolution.default
_backward = library.window_convolution_backward.default


def _new_last(like: Tensor, *shape: int) -> Tensor:
    """Make a tensor `[B, N, C, *]` with the channels last in memory."""
    models, samples, channels, *sides = shape
    return like.new_empty(models, samples, *sides, channels).movedim(-1, 2)


def _new_result(x: Tensor, weight: Tensor, bias: Tensor | None, *steps: Any) -> Tensor:
    ends = zip(x.shape[3:], weight.shape[3:], *steps[:3], strict=True)
    return _new_last(x, *x.shape[:2], weight.size(1), *(output_side(*end) for end in ends))


fake("window_convolution", _new_result)


def _new_gradients(grad: Tensor, x: Tensor, weight: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    found = _new_last(x, *x.shape), _new_last(x, *weight.shape), x.new_empty(len(x), weight.size(1))
    return tuple(t if needed else x.new_empty(0) for t, needed in zip(found, rest[-3:], strict=True))


fake("window_convolution_backward", _new_gradients)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, weight, _, *ctx.steps = inputs
    ctx.save_for_backward(x, weight)


def _grad(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    needs = ctx.needs_input_grad[:3]
    found = _backward(grad, *ctx.saved_tensors, *ctx.steps, *needs)
    return *(t if needed else None for t, needed in zip(found, needs, strict=True)), None, None, None, None


def _composition(x: Tensor, weight: Tensor, bias: Tensor | None, *steps: Any) -> Tensor:
    biases: Any = [None] * len(x) if bias is None else bias.unbind(0)
    # Contiguous: with the channels last torch refuses some gradients of gradients, as of a single filter.
    own = zip(x.contiguous().unbind(0), weight.contiguous().unbind(0), biases, strict=True)
    convolve: Any = torch.nn.functional.conv2d if x.dim() == 5 else torch.nn.functional.conv3d
    return torch.stack([convolve(*tensors, *steps) for tensors in own])


_eager = differentiable(_forward, _setup, _grad, _composition)


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
    call = _forward if tracing() else _eager
    result: Tensor = (call if on_cpu(x) else _composition)(x, weight, bias, *steps, groups)
    return result
