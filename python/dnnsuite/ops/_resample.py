# SPDX-License-Identifier: MIT
"""Images whose pixels are weighted sums along rows and columns: upsampled, padded, pooled by uneven windows."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from .device import on_cpu
from .library import below_autograd, eager, fake, in_gradient, library, tracing
from .shared import once
from .windows import of_sides

_resample = library.resample.default
_backward = library.resample_backward.default
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


def _multiplied(x: Tensor, formula: str, lines: Iterable[tuple[Any, ...]], kind: str) -> Tensor:
    rows, columns = (_matrix(kind, n, m, step, before, x) for n, m, step, before in lines)
    return _images(torch.einsum(formula, rows, columns, _rows(x)), x.dim())


def _composition(x: Tensor, kind: str, *rest: Any) -> Tensor:
    lines = zip(_rows(x).shape[2:4], rest[0:2], rest[2:4], rest[4:6], strict=True)
    return _multiplied(x, "oh,pw,bnhwc->bnopc", lines, kind)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, ctx.kind, _, _, *ctx.steps = inputs
    ctx.sides = x.shape[2:4]


def _gradient_of_rows(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return _backward_gradient(grad, ctx.kind, *ctx.sides, *ctx.steps), *(None,) * 7


def _gradient_of_gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return _forward_gradient(grad, ctx.kind, *ctx.sides, *ctx.steps), *(None,) * 7


torch.library.register_autograd(_resample.name(), _gradient_of_rows, setup_context=_setup)
torch.library.register_autograd(_backward.name(), _gradient_of_gradient, setup_context=_setup)


def _forward(x: Tensor, *rest: Any) -> Tensor:
    return _images(_resample(_rows(x), *rest), x.dim())


def _setup_images(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, ctx.kind, _, _, *ctx.steps = inputs
    ctx.sides = (1, *x.shape[3:])[-2:]


def _gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
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


_IMAGES = _forward, eager(_forward, _setup_images, _gradient, _composition), _composition
_VOLUMES = (
    _forward_volumes,
    eager(_forward_volumes, _setup_volumes, _gradient_volumes, _composition_volumes),
    _composition_volumes,
)


def resample(
    x: Tensor,
    kind: str,
    sides: Sequence[int],
    steps: Sequence[float] | None = None,
    before: Sequence[int] | None = None,
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
    forward, node, composition = _VOLUMES if x.dim() == 6 else _IMAGES
    call = forward if tracing() else node
    run = call if on_cpu(x) else composition
    return once(lambda one: run(one, kind, *rest), x)
