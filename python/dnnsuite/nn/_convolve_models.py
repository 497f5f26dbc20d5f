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
from ._models import each_model, stack_models

Geometry = tuple[list[int], list[int], list[int], bool, list[int], int]
"""Stride, padding, dilation, transposed, output padding, groups: as `torch.convolution` takes them."""


FEW_NUMBERS = 65536
"""Numbers of one model's result up to which stacking at the end is quicker: its calls are fewer, and it is in cache."""


class _Results:
    """Tensors of B models that come one after the other, laid out as `like` or as the first model's."""

    def __init__(self, B: int, like: Tensor | None = None) -> None:
        self._B, self._like = B, like
        self._places: tuple[Tensor, ...] = ()
        self._found: list[Tensor] = []
        self._all: Tensor | None = None

    def put(self, result: Tensor) -> None:
        """Take the next model's."""
        if self._all is None and (result.numel() > FEW_NUMBERS) and self._B > 1:
            strides = (result.numel(), *result.stride()) if self._like is None else self._like.stride()
            self._all = result.new_empty_strided((self._B, *result.shape), strides)
            self._places = self._all.unbind(0)
        if self._all is not None:
            self._places[len(self._found)].copy_(result)
            result = self._places[len(self._found)]
        self._found.append(result)

    def all(self) -> Tensor:
        """`[B, ...]` of them."""
        if self._all is not None:
            return self._all
        return self._found[0].unsqueeze(0) if self._B == 1 else stack_models(self._found)


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry) -> Tensor:
        ctx.save_for_backward(input, weight)
        ctx.geometry = geometry
        library.remember(ctx, (input, weight, bias, geometry))
        found = _Results(len(input))
        biases: Any = [None] * len(input) if bias is None else bias.unbind(0)
        for x, w, b in zip(input.unbind(0), weight.unbind(0), biases, strict=True):
            found.put(torch.convolution(x, w, b, *geometry))
        return found.all().data  # no view: torch refuses to write in place into one that a Function has made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            return library.gradients_through(_composition, ctx, (grad,))
        input, weight = ctx.saved_tensors
        wanted = list(ctx.needs_input_grad[:3])
        found = [_Results(len(grad)), _Results(len(grad), weight), _Results(len(grad))]
        for g, x, w in zip(grad.unbind(0), input.unbind(0), weight.unbind(0), strict=True):
            results = torch.ops.aten.convolution_backward(g, x, w, [g.size(1)], *ctx.geometry, wanted)
            for to, result in zip(found, results, strict=True):
                if result is not None:
                    to.put(result)
        return *(to.all() if needed else None for to, needed in zip(found, wanted, strict=True)), None


def _composition(input: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry) -> Tensor:
    return each_model(lambda x, w, b: torch.convolution(x, w, b, *geometry), input, weight, bias)


def convolve_models(input: Tensor, weight: Tensor, bias: Tensor | None, geometry: Geometry) -> Tensor:
    """Convolve each model's `[N, C, *]` of `input` with its own weight and bias."""
    watched = torch.compiler.is_compiling() or transforming() or len(input) == 0
    call: Any = _composition if watched else _Convolution.apply
    result: Tensor = call(input, weight, bias, geometry)
    return result
