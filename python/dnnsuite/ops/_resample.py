# SPDX-License-Identifier: MIT
"""Images whose pixels are weighted sums along rows and columns: upsampled, padded, pooled by uneven windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .device import on_cpu
from .library import below_autograd, differentiable, library, tracing
from .shared import once

__all__ = ["resample"]

_resample = library.resample.default
_backward = library.resample_backward.default


@torch.library.register_fake("dnnsuite::resample")
def _(x: Tensor, kind: str, height: int, width: int, *_: Any) -> Tensor:
    return x.new_empty(*x.shape[:2], height, width, x.shape[4])


@torch.library.register_fake("dnnsuite::resample_backward")
def _(grad: Tensor, kind: str, height: int, width: int, *_: Any) -> Tensor:
    return grad.new_empty(*grad.shape[:2], height, width, grad.shape[4])


def _matrix(kind: str, inputs: int, outputs: int, step: float, before: int, like: Tensor) -> Tensor:
    """Return the weights of a line [outputs, inputs]."""
    pixels = torch.eye(inputs, dtype=like.dtype).view(1, 1, inputs, 1, inputs)
    with below_autograd():
        line = _resample(pixels, kind, outputs, 1, step, 1.0, before, 0)
    return line.view(outputs, inputs).to(like.device)


def _composition(x: Tensor, kind: str, *rest: Any) -> Tensor:
    lines = zip(x.shape[2:4], rest[0:2], rest[2:4], rest[4:6], strict=True)
    rows, columns = (_matrix(kind, *line, x) for line in lines)
    return torch.einsum("oh,pw,bnhwc->bnopc", rows, columns, x)


def _gradient_composition(grad: Tensor, kind: str, *rest: Any) -> Tensor:
    lines = zip(rest[0:2], grad.shape[2:4], rest[2:4], rest[4:6], strict=True)
    rows, columns = (_matrix(kind, *line, grad) for line in lines)
    return torch.einsum("oh,pw,bnopc->bnhwc", rows, columns, grad)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, ctx.kind, _, _, *ctx.steps = inputs
    ctx.sides = x.shape[2:4]


def _gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return _backward(grad, ctx.kind, *ctx.sides, *ctx.steps), *(None,) * 7


def _gradient_of_gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return _resample(grad, ctx.kind, *ctx.sides, *ctx.steps), *(None,) * 7


_eager = differentiable(_resample, _setup, _gradient, _composition)
differentiable(_backward, _setup, _gradient_of_gradient, _gradient_composition)


def resample(
    x: Tensor,
    kind: str,
    sides: Sequence[int],
    steps: Sequence[float] = (0.0, 0.0),
    before: Sequence[int] = (0, 0),
) -> Tensor:
    """Resample images x [B, N, H, W, C] to [B, N, *sides, C]; those that all models share once.

    Args:
        kind: 'nearest', 'nearest-exact', 'linear' or 'cubic', as torch interpolates, with ' corners' behind the last
            two for aligned ones; 'average' as adaptive pools; 'circular', 'replicate' or 'reflect' padding.
        steps: pixels of x from one pixel of the result to the next, of what is interpolated.
        before: pixels of padding above and on the left.
    """
    call = _resample if tracing() else _eager
    run = call if on_cpu(x) else _composition
    return once(lambda one: run(one, kind, *sides, *steps, *before), x)
