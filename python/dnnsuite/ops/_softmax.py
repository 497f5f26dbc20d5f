# SPDX-License-Identifier: MIT
"""Softmax, and its logarithm, along rows of a few numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .library import differentiable, fakes_like, library, tracing

_softmax = library.short_softmax.default
_backward = library.short_softmax_backward.default


fakes_like("x", "short_softmax")
fakes_like("y", "short_softmax_backward")


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(output)
    ctx.log = inputs[1]


def _gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return _backward(grad, *ctx.saved_tensors, ctx.log), None


def _composition(x: Tensor, log: bool) -> Tensor:
    return torch.log_softmax(x, -1) if log else torch.softmax(x, -1)


_eager = differentiable(_softmax, _setup, _gradient, _composition)


def short_softmax(x: Tensor, log: bool = False) -> Tensor:
    """Compute the softmax of x [B, ..., D], or its logarithm, along rows of at most 32 elements, on a CPU."""
    y: Tensor = (_softmax if tracing() else _eager)(x, log)
    return y
