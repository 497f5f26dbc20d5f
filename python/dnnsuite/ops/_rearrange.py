# SPDX-License-Identifier: MIT
"""Copies of images, channels last in memory, with parts of their dimensions in another order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .device import on_cpu
from .library import differentiable, eager, fake, in_gradient, library, tracing
from .memory_order import memory_order, way_back

_copy = library.rearranged.default
_copy_gradient = in_gradient(_copy)
fake("rearranged", lambda x, order: x.new_empty([x.size(dim) for dim in order]))


def _copy_composition(x: Tensor, order: Sequence[int]) -> Tensor:
    return x.permute(list(order)).clone(memory_format=torch.contiguous_format)


def _setup_copy(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.order = inputs[1]


def _grad_of_copy(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    return _copy_gradient(grad, way_back(ctx.order)), None


_eager_copy = differentiable(_copy, _setup_copy, _grad_of_copy, _copy_composition)


def copied_in_order(x: Tensor, order: Sequence[int]) -> Tensor | None:
    """Copy `x.permute(order)` into a contiguous tensor, on a CPU; its gradient has the memory format of x.

    Returns None if x has gaps in memory, or where only torch can copy it.
    """
    if not on_cpu(x) or x.dtype not in (torch.float32, torch.float64):
        return None
    lies = memory_order(x)
    packed = x.permute(lies)
    if not packed.is_contiguous():
        return None
    copy = _copy if tracing() else _eager_copy
    y: Tensor = copy(packed, [lies.index(dim) for dim in order])
    return y


def _through(copy: Any, x: Tensor, parts: Sequence[int], order: Sequence[int], shape: Sequence[int]) -> Tensor:
    """Copy x `[B, N, C, *]` with the function `copy`: of its pixels `[B, *parts]`, in `order`, to `[B, *shape]`."""
    rows: Tensor = copy(x.movedim(2, -1).reshape(x.size(0), *parts), order)
    return rows.reshape(x.size(0), *shape).movedim(-1, 2)


def _forward(x: Tensor, *ways: Sequence[int]) -> Tensor:
    return _through(_copy, x, *ways)


def _composition(x: Tensor, *ways: Sequence[int]) -> Tensor:
    return _through(_copy_composition, x, *ways)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, parts, order, _ = inputs
    sizes = (0, *parts)
    ctx.ways = [sizes[dim] for dim in order[1:]], way_back(order), (x.size(1), *x.shape[3:], x.size(2))


def _gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return _through(_copy_gradient, grad, *ctx.ways), None, None, None


_eager = eager(_forward, _setup, _gradient, _composition)


def rearranged(x: Tensor, parts: Sequence[int], order: Sequence[int], shape: Sequence[int]) -> Tensor:
    """Copy x [B, N, C, *], whose channels are last in memory, with the parts of its dimensions in another order.

    Args:
        parts: sizes of the parts into which `[N, *, C]` is split.
        order: new order of `[B, *parts]`; the model stays in front.
        shape: sizes `[N, *, C]` of the result, whose channels are last in memory too.
    """
    if not on_cpu(x) or x.dtype not in (torch.float32, torch.float64):
        return _composition(x, parts, order, shape)
    y: Tensor = (_forward if tracing() else _eager)(x, list(parts), list(order), list(shape))
    return y
