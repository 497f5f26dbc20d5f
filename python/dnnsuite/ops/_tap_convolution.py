# SPDX-License-Identifier: MIT
"""Convolution of images so small that most filter taps are on the padding: products with the other taps.

With channels last, a row of an image is one row of a matrix, and so are neighbouring taps of a filter: an output pixel
needs one product per input row. For a 3 x 3 filter on 2 x 2 pixels that is 4/9 of a convolution's work, and the weight
is not copied (`benchmarks/ops/bench_convolution.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import InvalidArgument
from .library import gradients_through, remember, tracing, transforming
from .windows import output_side

__all__ = ["tap_convolution"]


@dataclass(frozen=True)
class _Piece:
    """Pixels `first` to `last` of input row `row` under the filter of output pixel (`y`, `x`), and as many taps."""

    y: int
    x: int
    row: int
    first: int
    last: int
    tap_row: int
    tap: int

    def pixels(self, images: Tensor) -> Tensor:
        """View the pixels in images [N, H, W, C], as [N, pixels * C]."""
        return images[:, self.row, self.first : self.last].flatten(1)

    def taps(self, weight: Tensor) -> Tensor:
        """View the taps in filters [O, KH, KW, C], as [O, taps * C]."""
        return weight[:, self.tap_row, self.tap : self.tap + self.last - self.first].flatten(1)


Pair = tuple[int, int]


def _outputs(sides: Pair, kernel: Pair, stride: Pair, padding: Pair) -> Pair:
    rows, columns = (output_side(*side) for side in zip(sides, kernel, stride, padding, strict=True))
    return rows, columns


@functools.cache
def _pieces(sides: Pair, kernel: Pair, stride: Pair, padding: Pair) -> tuple[_Piece, ...]:
    """List the pieces of all output pixels; a pixel that sees only padding has none."""
    found = []
    rows, columns = _outputs(sides, kernel, stride, padding)
    for y in range(rows):
        for x in range(columns):
            top, left = y * stride[0] - padding[0], x * stride[1] - padding[1]
            first, last = max(left, 0), min(left + kernel[1], sides[1])
            for row in range(max(top, 0), min(top + kernel[0], sides[0])):
                if first < last:
                    found.append(_Piece(y, x, row, first, last, row - top, first - left))
    return tuple(found)


def _composition(x: Tensor, weight: Tensor, stride: Pair, padding: Pair) -> Tensor:
    pairs = zip(x.movedim(-1, 2), weight.movedim(-1, 2), strict=True)
    results = [
        torch.nn.functional.conv2d(images, filters, None, stride, padding) for images, filters in pairs
    ]
    return torch.stack(results).movedim(2, -1)


class _TapConvolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: Pair, padding: Pair) -> Tensor:
        ctx.save_for_backward(x, weight)
        remember(ctx, (x, weight, stride, padding))
        sides, kernel = ((t.shape[2], t.shape[3]) for t in (x, weight))
        geometry = (sides, kernel, stride, padding)
        rows, columns = _outputs(*geometry)
        ctx.pieces = pieces = _pieces(*geometry)
        y = x.new_empty(*x.shape[:2], rows, columns, weight.shape[1])
        if len({(piece.y, piece.x) for piece in pieces}) < rows * columns:
            y.zero_()
        for images, filters, result in zip(x, weight, y, strict=True):
            begun = None
            for piece in pieces:
                to = result[:, piece.y, piece.x]
                product = piece.pixels(images), piece.taps(filters).t()
                if begun == (piece.y, piece.x):
                    torch.addmm(to, *product, out=to)
                else:
                    torch.mm(*product, out=to)
                begun = piece.y, piece.x
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            return gradients_through(_composition, ctx, (grad,))
        x, weight = ctx.saved_tensors
        needs_x, needs_weight = ctx.needs_input_grad[:2]
        grad = grad.contiguous()
        dx, dweight = (
            # In memory order, whatever the input's: the pieces are to be views.
            torch.zeros_like(t, memory_format=torch.contiguous_format) if needed else None
            for t, needed in ((x, needs_x), (weight, needs_weight))
        )
        for model, g in enumerate(grad):
            for piece in ctx.pieces:
                own = g[:, piece.y, piece.x]
                if dx is not None:
                    to = piece.pixels(dx[model])
                    torch.addmm(to, own, piece.taps(weight[model]), out=to)
                if dweight is not None:
                    to = piece.taps(dweight[model])
                    torch.addmm(to, own.t(), piece.pixels(x[model]), out=to)
        return dx, dweight, None, None


def tap_convolution(
    x: Tensor, weight: Tensor, stride: Sequence[int] = (1, 1), padding: Sequence[int] = (0, 0)
) -> Tensor:
    """Convolve without dilation or groups: x [B, N, H, W, I], weight [B, O, KH, KW, I] to [B, N, OH, OW, O]."""
    if x.dim() != 5 or weight.dim() != 5 or x.shape[::4] != weight.shape[::4]:
        raise InvalidArgument(
            "tap_convolution takes x [B, N, H, W, I] and weight [B, O, KH, KW, I], not "
            f"{list(x.shape)} and {list(weight.shape)}"
        )
    call: Any = _composition if tracing() or transforming() else _TapConvolution.apply
    result: Tensor = call(x, weight, tuple(stride), tuple(padding))
    return result
