# SPDX-License-Identifier: MIT
"""Rectifiers with a slope of each channel."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .library import differentiable, eager, fakes_like, library, tracing

_prelu = library.prelu.default
_backward = library.prelu_backward.default


fakes_like("x", "prelu")
fakes_like(("x", "slopes"), "prelu_backward")


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs[:2])
    ctx.rest = inputs[2:]


def _gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return *_backward(grad, *ctx.saved_tensors, *ctx.rest), None


def _runs(x: Tensor, slopes: Tensor, inner: int) -> Tensor:
    """Compose `prelu` of torch's functions."""
    runs = x.reshape(len(x), -1, slopes.size(1), inner)
    return torch.where(runs > 0, runs, runs * slopes[:, None, :, None]).reshape(x.shape)


differentiable(_prelu, _setup, _gradient, _runs)


def _turned(x: Tensor, last: bool) -> Tensor:
    return x.movedim(2, -1) if last else x


def _forward(x: Tensor, slopes: Tensor, inner: int, last: bool) -> Tensor:
    y = _prelu(_turned(x, last), slopes, inner)
    return y.movedim(-1, 2) if last else y


def _gradient_of_images(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    x, slopes = ctx.saved_tensors
    inner, last = ctx.rest
    dx, dslopes = _backward(_turned(grad, last), _turned(x, last), slopes, inner)
    return dx.movedim(-1, 2) if last else dx, dslopes, None, None


def _composition(x: Tensor, slopes: Tensor, inner: int, last: bool) -> Tensor:
    shape = (len(x), 1, slopes.size(1), *(1 for _ in x.shape[3:]))
    return torch.where(x > 0, x, x * slopes.view(shape[: x.dim()]))


_eager = eager(_forward, _setup, _gradient_of_images, _composition)


def prelu(x: Tensor, slopes: Tensor) -> Tensor | None:
    """Return x [B, N, C, *] where it is above zero, else x times `slopes` [B, C] or [B, 1], on a CPU.

    Returns None if x has gaps in memory.
    """
    last = not x.is_contiguous()
    if x.dim() < 3 or not x.is_cpu or (last and not x.movedim(2, -1).is_contiguous()):
        return None
    inner = x.shape[2:].numel() if slopes.size(1) == 1 else 1 if last else x.shape[3:].numel()
    y: Tensor = (_forward if tracing() else _eager)(x, slopes, inner, last)
    return y
