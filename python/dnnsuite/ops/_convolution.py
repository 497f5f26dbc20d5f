# SPDX-License-Identifier: MIT
"""Convolutions of B models by torch, model by model, each result written into its place in the array's.

Results stacked or copied afterwards would be in memory twice, which takes a tenth to a third of the time of
convolutions that are fast for their size (`benchmarks/ops/grid.py`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .library import differentiable, fake, library

ConvolutionGeometry = tuple[list[int], list[int], list[int], bool, list[int], int]
"""Stride, padding, dilation, transposed, output padding and groups, in the order of `torch.convolution`."""

_forward = library.convolve_models.default
_backward = library.convolve_models_backward.default


def _new_result(x: Tensor, weight: Tensor, bias: Tensor | None, *geometry: Any) -> Tensor:
    own = torch.convolution(x[0], weight[0], None if bias is None else bias[0], *geometry)
    return own.new_empty_strided((len(x), *own.shape), (own.numel(), *own.stride()))


fake("convolve_models", _new_result)


def _new_gradients(grad: Tensor, x: Tensor, weight: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    found = torch.empty_like(x), torch.empty_like(weight), x.new_empty(len(x), grad.size(2))
    return tuple(t if needed else x.new_empty(0) for t, needed in zip(found, rest[-3:], strict=True))


fake("convolve_models_backward", _new_gradients)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, weight, _, *ctx.geometry = inputs
    ctx.save_for_backward(x, weight)


def _grad(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    needs = ctx.needs_input_grad[:3]
    found = _backward(grad, *ctx.saved_tensors, *ctx.geometry, *needs)
    return *(t if needed else None for t, needed in zip(found, needs, strict=True)), *(None for _ in ctx.geometry)


def _composition(x: Tensor, weight: Tensor, bias: Tensor | None, *geometry: Any) -> Tensor:
    biases: Any = [None] * len(x) if bias is None else bias.unbind(0)
    own = zip(x.unbind(0), weight.unbind(0), biases, strict=True)
    return torch.stack([torch.convolution(*tensors, *geometry) for tensors in own])


_eager = differentiable(_forward, _setup, _grad, _composition)


def convolve_models(x: Tensor, weight: Tensor, bias: Tensor | None, geometry: ConvolutionGeometry) -> Tensor:
    """Convolve x [B, N, C, *] of one or more models with the weight [B, O, I, *] and bias [B, O] of each.

    x may be one batch for all models (stride 0 in dimension 0). The result has the same memory format as torch's result
    for one model.
    """
    result: Tensor = _eager(x, weight, bias, *geometry)
    return result
