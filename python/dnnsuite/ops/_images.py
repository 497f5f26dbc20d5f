# SPDX-License-Identifier: MIT
"""Images, channels last in memory: their windows as rows of a matrix, copies with parts in another order, and pixels
that are weighted sums along rows and columns (upsampled, padded, pooled by uneven windows)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .device import on_cpu
from .library import below_autograd, differentiable, eager, fake, in_gradient, library, saves, tracing
from .memory_order import packed, way_back
from .shared import once
from .windows import Sizes, of_sides, output_side

_cut_gradient, _put_gradient = in_gradient(library.patches.default), in_gradient(library.add_patches.default)


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


def _grad_of_put(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return _cut_gradient(grad, *ctx.steps), None, None, *(None for _ in ctx.steps)


_cut = differentiable(library.patches.default, _setup_cut, _grad_of_cut, _cut_composition)
_put = differentiable(library.add_patches.default, saves(steps=slice(3, None)), _grad_of_put, _put_composition)


def patches(x: Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int]) -> Tensor:
    """Extract the windows of images x [B, N, H, W, C]; the result is [B, N, OH, OW, KH * KW * C].

    Padding is zeros. If all models share the images, they share the windows too.
    """
    cut = _cut if on_cpu(x) else _cut_composition
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
    put = _put if on_cpu(patches) else _put_composition
    return put(patches, *sides, *kernel, *stride, *padding)


_copy = library.rearranged.default
_copy_gradient = in_gradient(_copy)
fake("rearranged", lambda x, order: x.new_empty([x.size(dim) for dim in order]))


def _copy_composition(x: Tensor, order: Sequence[int]) -> Tensor:
    return x.permute(list(order)).clone(memory_format=torch.contiguous_format)


def _grad_of_copy(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    return _copy_gradient(grad, way_back(ctx.order)), None


_eager_copy = differentiable(_copy, saves(order=1), _grad_of_copy, _copy_composition)


def copied_in_order(x: Tensor, order: Sequence[int]) -> Tensor | None:
    """Copy `x.permute(order)` into a contiguous tensor, on a CPU; its gradient has the memory format of x.

    Returns None if x has gaps in memory, or where only torch can copy it.
    """
    if not on_cpu(x) or x.dtype not in (torch.float32, torch.float64):
        return None
    found = packed(x)
    return None if found is None else _eager_copy(found[0], [found[1].index(dim) for dim in order])


def _through(copy: Any, x: Tensor, parts: Sequence[int], order: Sequence[int], shape: Sequence[int]) -> Tensor:
    """Copy x `[B, N, C, *]` with the function `copy`: of its pixels `[B, *parts]`, in `order`, to `[B, *shape]`."""
    rows = copy(x.movedim(2, -1).reshape(x.size(0), *parts), order)
    return rows.reshape(x.size(0), *shape).movedim(-1, 2)


def _rearrange_forward(x: Tensor, *ways: Sequence[int]) -> Tensor:
    return _through(_copy, x, *ways)


def _rearrange_composition(x: Tensor, *ways: Sequence[int]) -> Tensor:
    return _through(_copy_composition, x, *ways)


def _rearrange_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, parts, order, _ = inputs
    sizes = (0, *parts)
    ctx.ways = [sizes[dim] for dim in order[1:]], way_back(order), (x.size(1), *x.shape[3:], x.size(2))


def _rearrange_gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return _through(_copy_gradient, grad, *ctx.ways), None, None, None


_eager = eager(_rearrange_forward, _rearrange_setup, _rearrange_gradient, _rearrange_composition, registered=True)


def rearranged(x: Tensor, parts: Sequence[int], order: Sequence[int], shape: Sequence[int]) -> Tensor:
    """Copy x [B, N, C, *], whose channels are last in memory, with the parts of its dimensions in another order.

    Args:
        parts: sizes of the parts into which `[N, *, C]` is split.
        order: new order of `[B, *parts]`; the model stays in front.
        shape: sizes `[N, *, C]` of the result, whose channels are last in memory too.
    """
    ours = on_cpu(x) and x.dtype in (torch.float32, torch.float64)
    return (_eager if ours else _rearrange_composition)(x, list(parts), list(order), list(shape))


_resample, _backward = library.resample.default, library.resample_backward.default
_forward_gradient, _backward_gradient = in_gradient(_resample), in_gradient(_backward)
fake("resample", lambda x, height, width: of_sides(x, height, width))
fake("resample_backward", of_sides)


def _matrix(kind: str, inputs: int, outputs: int, step: float, before: int, like: Tensor) -> Tensor:
    """Return the weights of a line [outputs, inputs]."""
    made = _new_matrix if tracing() else _known_matrix
    return made(kind, inputs, outputs, step, before, like.dtype, like.device)


def _new_matrix(
    kind: str, inputs: int, outputs: int, step: float, before: int, dtype: torch.dtype, device: torch.device
) -> Tensor:
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    pixels = torch.eye(inputs, dtype=wide).view(1, 1, inputs, 1, inputs)
    with below_autograd():
        line = _resample(pixels, kind, outputs, 1, step, 1.0, before, 0)
    return line.view(outputs, inputs).to(device, dtype)


@functools.lru_cache(64)
def _known_matrix(*what: Any) -> Tensor:
    """Make a matrix once: from the host, where it is made, none can be copied while a GPU's step is captured."""
    with torch.inference_mode(False):
        return _new_matrix(*what)


def _rows(x: Tensor) -> Tensor:
    """Return the pixels `[B, N, H, W, C]` of images `[B, N, C, H, W]` or lines `[B, N, C, L]`."""
    rows = x.movedim(2, -1)
    return rows if x.dim() == 5 else rows.unsqueeze(2)


def _images(rows: Tensor, dims: int) -> Tensor:
    return (rows if dims == 5 else rows.squeeze(2)).movedim(-1, 2)


def _resample_composition(x: Tensor, kind: str, *rest: Any) -> Tensor:
    lines = zip(_rows(x).shape[2:4], rest[0:2], rest[2:4], rest[4:6], strict=True)
    rows, columns = (_matrix(kind, n, m, step, before, x) for n, m, step, before in lines)
    return _images(torch.einsum("oh,pw,bnhwc->bnopc", rows, columns, _rows(x)), x.dim())


def _resample_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, ctx.kind, _, _, *ctx.steps = inputs
    ctx.sides = x.shape[2:4]


def _gradient_of_rows(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return _backward_gradient(grad, ctx.kind, *ctx.sides, *ctx.steps), *(None,) * 7


def _gradient_of_gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return _forward_gradient(grad, ctx.kind, *ctx.sides, *ctx.steps), *(None,) * 7


torch.library.register_autograd(_resample.name(), _gradient_of_rows, setup_context=_resample_setup)
torch.library.register_autograd(_backward.name(), _gradient_of_gradient, setup_context=_resample_setup)


def _resample_forward(x: Tensor, *rest: Any) -> Tensor:
    return _images(_resample(_rows(x), *rest), x.dim())


def _setup_images(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, ctx.kind, _, _, *ctx.steps = inputs
    ctx.sides = (1, *x.shape[3:])[-2:]


def _resample_gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    dx = _backward_gradient(_rows(grad), ctx.kind, *ctx.sides, *ctx.steps)
    return _images(dx, grad.dim()), *(None,) * 7


def _of_planes(rest: Sequence[Any]) -> tuple[Any, ...]:
    """Return the arguments for the planes of volumes, from sides, steps and padding of depth, height and width."""
    return (*rest[1:3], *rest[4:6], *rest[7:9])


def _of_depth(rest: Sequence[Any]) -> tuple[Any, ...]:
    """Return the arguments for lines along the depth of volumes; a line is an image of one row."""
    return 1, rest[0], 1.0, rest[3], 0, rest[6]


def _forward_volumes(x: Tensor, kind: str, *rest: Any) -> Tensor:
    """Resample each plane as an image, then the planes as the pixels of a line."""
    B, N, C, D, H, W = x.shape
    depth, height, width = rest[:3]
    planes = _resample(x.movedim(2, -1).reshape(B, N * D, H, W, C), kind, *_of_planes(rest))
    result = _resample(planes.view(B, N, 1, D, height * width * C), kind, *_of_depth(rest))
    return result.view(B, N, depth, height, width, C).movedim(-1, 2)


def _setup_volumes(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, ctx.kind, *ctx.rest = inputs
    ctx.sides = x.shape[3:]


def _gradient_volumes(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    B, N, C, depth, height, width = grad.shape
    D, H, W = ctx.sides
    lines = grad.movedim(2, -1).reshape(B, N, 1, depth, height * width * C)
    planes = _backward_gradient(lines, ctx.kind, 1, D, *_of_depth(ctx.rest)[2:]).view(B, N * D, height, width, C)
    dx = _backward_gradient(planes, ctx.kind, H, W, *_of_planes(ctx.rest)[2:])
    return dx.view(B, N, D, H, W, C).movedim(-1, 2), *(None,) * 10


def _composition_volumes(x: Tensor, kind: str, *rest: Any) -> Tensor:
    lines = zip(x.shape[3:], rest[0:3], rest[3:6], rest[6:9], strict=True)
    deep, rows, columns = (_matrix(kind, n, m, step, before, x) for n, m, step, before in lines)
    return torch.einsum("ed,oh,pw,bncdhw->bneopc", deep, rows, columns, x).movedim(-1, 2)


_of_images = eager(_resample_forward, _setup_images, _resample_gradient, _resample_composition, registered=True)
_of_volumes = eager(_forward_volumes, _setup_volumes, _gradient_volumes, _composition_volumes, registered=True)


def resample(
    x: Tensor, kind: str, sides: Sizes, steps: Sequence[float] | None = None, before: Sizes | None = None
) -> Tensor:
    """Resample lines x [B, N, C, L], images [B, N, C, H, W] or volumes [B, N, C, D, H, W] to the size `sides`.

    The channels are last in memory. A tensor that all models share is resampled once.

    Args:
        kind: 'nearest', 'nearest-exact', 'linear' or 'cubic' for torch's interpolations, the last two followed by '
            corners' for aligned corners; 'average' for adaptive pooling; 'zero', 'circular', 'replicate' or 'reflect'
            for padding.
        sides: size of the result: length, or height and width, or depth, height and width.
        steps: number of pixels of x from one pixel of the result to the next, for interpolations.
        before: number of pixels of padding above and to the left.
    """
    row = (1,) * (5 - x.dim())  # a line is an image of one row
    rest = (*row, *sides, *row, *(steps or (1.0,) * len(sides)), *(0 for _ in row), *(before or (0,) * len(sides)))
    ours, torchs = (_of_volumes, _composition_volumes) if x.dim() == 6 else (_of_images, _resample_composition)
    run = ours if on_cpu(x) else torchs
    return once(lambda one: run(one, kind, *rest), x)
