# SPDX-License-Identifier: MIT
"""Windows of images as rows of a matrix, and back, channels last: with them a convolution is a product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from .device import on_cpu
from .library import differentiable, fake, in_gradient, library, tracing
from .shared import once
from .windows import output_side

_cut = library.patches.default
_put = library.add_patches.default
_cut_gradient, _put_gradient = in_gradient(_cut), in_gradient(_put)


def _new_patches(x: Tensor, *steps: int) -> Tensor:
    sides = (output_side(*side) for side in zip(x.shape[2:4], *_pairs(steps), strict=True))
    return x.new_empty((*x.shape[:2], *sides, steps[0] * steps[1] * x.shape[4]))


fake("patches", _new_patches)
fake(
    "add_patches",
    lambda patches, height, width, kernel_h, kernel_w: patches.new_empty(
        (*patches.shape[:2], height, width, patches.shape[4] // (kernel_h * kernel_w))
    ),
)


def _pairs(steps: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    return steps[0:2], steps[2:4], steps[4:6]


def _cut_composition(x: Tensor, *steps: int) -> Tensor:
    kernel, stride, padding = _pairs(steps)
    images = x.flatten(0, 1).movedim(-1, 1)
    sides = [output_side(*side) for side in zip(x.shape[2:4], *_pairs(steps), strict=True)]
    columns = F.unfold(images, kernel, 1, padding, stride)  # [B * N, C * KH * KW, OH * OW]
    return columns.unflatten(1, (x.shape[4], -1)).permute(0, 3, 2, 1).reshape(*x.shape[:2], *sides, -1)


def _put_composition(patches: Tensor, height: int, width: int, *steps: int) -> Tensor:
    kernel, stride, padding = _pairs(steps)
    rows = patches.flatten(0, 1).flatten(1, 2)  # [B * N, OH * OW, KH * KW * C]
    columns = rows.unflatten(2, (steps[0] * steps[1], -1)).permute(0, 3, 2, 1).flatten(1, 2)
    images = F.fold(columns, (height, width), kernel, 1, padding, stride)
    return images.movedim(1, -1).unflatten(0, patches.shape[:2])


def _setup_cut(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, *ctx.steps = inputs
    ctx.sides = x.shape[2:4]


def _grad_of_cut(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return _put_gradient(grad, *ctx.sides, *ctx.steps), *(None for _ in ctx.steps)


def _setup_put(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.steps = inputs[3:]


def _grad_of_put(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return _cut_gradient(grad, *ctx.steps), None, None, *(None for _ in ctx.steps)


_eager_cut = differentiable(_cut, _setup_cut, _grad_of_cut, _cut_composition)
_eager_put = differentiable(_put, _setup_put, _grad_of_put, _put_composition)


def patches(x: Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int]) -> Tensor:
    """Extract the windows of images x [B, N, H, W, C]; the result is [B, N, OH, OW, KH * KW * C].

    Padding is zeros. If all models share the images, they share the windows too.
    """
    call = _cut if tracing() else _eager_cut
    cut = call if on_cpu(x) else _cut_composition
    return once(lambda one: cut(one, *kernel, *stride, *padding), x)


def add_patches(
    patches: Tensor, sides: Sequence[int], kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int]
) -> Tensor:
    """Add windows [B, N, OH, OW, KH * KW * C] up to images [B, N, H, W, C]: the gradient of `patches`.

    Args:
        patches: the windows.
        sides: height H and width W of the images.
        kernel, stride, padding: see `patches`.
    """
    call = _put if tracing() else _eager_put
    put = call if on_cpu(patches) else _put_composition
    result: Tensor = put(patches, *sides, *kernel, *stride, *padding)
    return result
