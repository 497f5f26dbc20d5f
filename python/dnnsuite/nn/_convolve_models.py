# SPDX-License-Identifier: MIT
"""Convolution model by model, each result written to its place in that of all as soon as it is there.

Stacked at the end, the results of B models would be in memory twice, and outside a StepRunner most of it would be
paged in anew at every step.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._torch import transforming
from ..ops import library
from ._models import each_model

Geometry = tuple[list[int], list[int], list[int], bool, list[int], int]
"""Stride, padding, dilation, transposed, output padding, groups: as `torch.convolution` takes them."""


class _Results:
    """Tensors of B models to be filled one after the other, laid out as the first model's."""

    def __init__(self, B: int, like: Tensor | None = None) -> None:
        self.B = B
        self.all = None if like is None else torch.empty_like(like)

    def put(self, model: int, result: Tensor) -> None:
        if self.all is None:
            strides = (result.numel(), *result.stride())
            self.all = result.new_empty_strided((self.B, *result.shape), strides)
        self.all[model].copy_(result)


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry) -> Tensor:
        ctx.save_for_backward(input, weight)
        ctx.geometry = geometry
        library.remember(ctx, (input, weight, bias, geometry))
        found = _Results(len(input))
        for model, (x, w) in enumerate(zip(input, weight, strict=True)):
            found.put(model, torch.convolution(x, w, None if bias is None else bias[model], *geometry))
        assert found.all is not None
        return found.all

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            return library.gradients_through(_composition, ctx, (grad,))
        input, weight = ctx.saved_tensors
        wanted = list(ctx.needs_input_grad[:3])
        found = [_Results(len(grad)), _Results(len(grad), weight), _Results(len(grad))]
        for model, (g, x, w) in enumerate(zip(grad, input, weight, strict=True)):
            results = torch.ops.aten.convolution_backward(g, x, w, [w.size(0)], *ctx.geometry, wanted)
            for to, result in zip(found, results, strict=True):
                if result is not None:
                    to.put(model, result)
        return *(to.all if needed else None for to, needed in zip(found, wanted, strict=True)), None


def _composition(input: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry) -> Tensor:
    return each_model(lambda x, w, b: torch.convolution(x, w, b, *geometry), input, weight, bias)


def convolve_models(input: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry) -> Tensor:
    """Convolve each model's `[N, C, *]` of `input` with its own weight and bias."""
    watched = torch.compiler.is_compiling() or transforming() or len(input) == 0
    call: Any = _composition if watched else _Convolution.apply
    result: Tensor = call(input, weight, bias, geometry)
    return result
