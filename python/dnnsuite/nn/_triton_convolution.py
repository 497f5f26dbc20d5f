# SPDX-License-Identifier: MIT
"""One convolution of B models by Triton kernels: forward, and both gradients; transposed too.

Results are [B, N, O, H, W] with each model's channels last in memory. Tiles are chosen by measurement when a shape is
first met, those of a backward pass before it, so that nothing is measured or compiled inside a capture.

Sums are in float32. Products of float32 are TF32 where `torch.backends.cudnn.allow_tf32` says so, as torch's
convolutions are, else three TF32 products each, whose error is that of float32.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from .._torch import backward_pass
from .._ways import fastest
from ..ops import each_convolved
from ..ops.library import eager
from ..ops.shared import once
from ._triton_operators import FEW, MOST, Tile, convolution, filter_gradient, interpreted, reached

Steps = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
"""Stride, padding, dilation."""

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@cache
def _installed() -> bool:
    return importlib.util.find_spec("triton") is not None


def takes(x: Tensor, weight: Tensor, bias: Tensor | None, groups: int) -> bool:
    """Return True if `convolve` can compute this here. Convolutions of single channels are left to others: products
    of matrices would be 16 times too large."""
    cuda = x.device.type == "cuda"
    here = torch.cuda.get_device_capability(x.device) >= (8, 0) if cuda else interpreted()
    if not here or not _installed() or (groups > 1 and weight.size(2) == 1):
        return False
    given = [t for t in (x, weight, bias) if t is not None]
    cast = torch.is_autocast_enabled(x.device.type)
    alike = cast or all(t.dtype == x.dtype for t in given)
    spans = (sum((n - 1) * s for n, s in zip(t.shape[1:], t.stride()[1:], strict=True)) for t in given)
    return alike and all(t.dtype in _DTYPES for t in given) and max(spans) < MOST


def convolve(
    x: Tensor, weight: Tensor, bias: Tensor | None, steps: Steps, groups: int = 1, extra: Sequence[int] | None = None
) -> Tensor:
    """Convolve x [B, N, C, H, W] with weight [B, O, C / groups, R, S], differentiably. x may be one batch for all
    models (stride 0 in dimension 0).

    Args:
        bias: [B, O] or None.
        steps: stride, padding, dilation.
        extra: output padding of a transposed convolution, of weight [B, C, O / groups, R, S]; None for a convolution.
    """
    if torch.is_autocast_enabled(x.device.type):
        dtype = torch.get_autocast_dtype(x.device.type)
        x, weight = once(partial(Tensor.to, dtype=dtype), x), weight.to(dtype)
        bias = bias if bias is None else bias.to(dtype)
    x = _last(x)
    size = _size(x, weight, steps, extra)
    geometry = [*sum(steps, ()), groups, *size]
    products = precision()
    chosen = _chosen(x, weight, bias, geometry, extra is not None, products)
    return _eager(x, weight, bias, geometry, extra is not None, products, *chosen)


def precision() -> str:
    """Name how products of float32 are formed in convolutions: "tf32" or "tf32x3"."""
    try:
        tf32 = bool(torch.backends.cudnn.allow_tf32)
    except RuntimeError:  # it was set by torch's newer names
        tf32 = bool(torch.backends.cudnn.conv.fp32_precision == "tf32")  # type: ignore[attr-defined]
    return "tf32" if tf32 else "tf32x3"


def _last(x: Tensor) -> Tensor:
    """Lay `[B, N, C, H, W]` out with channels last, unless it is or they are few; what models share stays so."""
    if x.stride(2) == 1 or x.size(2) < FEW:
        return x
    return once(lambda own: own.movedim(2, -1).contiguous().movedim(-1, 2), x)


def _size(x: Tensor, weight: Tensor, steps: Steps, extra: Sequence[int] | None) -> tuple[int, ...]:
    """Compute height and width of the result."""
    found = []
    for i, (stride, padding, dilation) in enumerate(zip(*steps, strict=True)):
        reach = dilation * (weight.size(3 + i) - 1)
        if extra is None:
            found.append((x.size(3 + i) + 2 * padding - reach - 1) // stride + 1)
        else:
            found.append((x.size(3 + i) - 1) * stride - 2 * padding + reach + 1 + extra[i])
    return tuple(found)


# ── autograd ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _forward(
    x: Tensor, w: Tensor, bias: Tensor | None, geometry: list[int], transposed: bool, precision: str, *tiles: Tile
) -> Tensor:
    return convolution(x, w, bias, geometry, transposed, precision, tiles[0])


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, w, _, ctx.geometry, ctx.transposed, ctx.precision, *ctx.tiles = inputs
    ctx.save_for_backward(x, w)


def _grad(ctx: Any, dy: Tensor) -> tuple[Any, ...]:
    x, w = ctx.saved_tensors
    needs = ctx.needs_input_grad
    dy = _last(dy)
    dx = dw = db = None
    if needs[0]:
        back = [*ctx.geometry[:7], *x.shape[3:]]
        dx = convolution(dy, w, None, back, not ctx.transposed, ctx.precision, ctx.tiles[1])
    if needs[1]:
        images = (dy, x) if ctx.transposed else (x, dy)
        dw = filter_gradient(*images, w, ctx.geometry, ctx.precision, ctx.tiles[2])
    if needs[2]:
        db = dy.sum((1, 3, 4)).to(dy.dtype)  # autocast would leave it in 32 bits
    return dx, dw, db, *(None,) * (3 + len(ctx.tiles))


def _composition(x: Tensor, w: Tensor, bias: Tensor | None, geometry: list[int], transposed: bool, *_: Any) -> Tensor:
    """The same by torch, model by model, for gradients of gradients."""
    stride, padding, dilation = geometry[:2], geometry[2:4], geometry[4:6]
    extra = [0, 0]
    if transposed:
        least = _size(x, w, (tuple(stride), tuple(padding), tuple(dilation)), (0, 0))  # type: ignore[arg-type]
        extra = [size - small for size, small in zip(geometry[7:], least, strict=True)]
    return each_convolved(x, w, bias, stride, padding, dilation, transposed, extra, geometry[6])


_eager = eager(_forward, _setup, _grad, _composition)


# ── tiles ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

_known: dict[Any, list[Tile]] = {}


def _chosen(
    x: Tensor, w: Tensor, bias: Tensor | None, geometry: list[int], transposed: bool, precision: str
) -> list[Tile]:
    """Choose the tiles of the forward pass and of both gradients; by measurement of those that will be asked for."""
    grad = torch.is_grad_enabled()
    needs = grad and x.requires_grad, grad and w.requires_grad
    looks = (x.shape, x.stride(), x.dtype, x.device, w.shape, w.stride(), bias is None)
    key = (*looks, tuple(geometry), transposed, precision, needs)
    found = _known.get(key)
    if found is not None:
        return found
    x, w, bias = x.detach(), w.detach(), bias if bias is None else bias.detach()
    channels = geometry[6] * w.size(2) if transposed else w.size(1)
    dy = x.new_empty(*x.shape[:2], *geometry[7:], channels).movedim(-1, 2)
    back = [*geometry[:7], *x.shape[3:]]
    forward = _fastest(
        tiles(x, w, geometry, transposed),
        lambda tile: lambda x, w, b: convolution(x, w, b, geometry, transposed, precision, tile),
        (x, w, bias),
        ("triton convolution", geometry, transposed, precision),
    )
    of_input = _fastest(
        tiles(dy, w, back, not transposed)[: None if needs[0] else 1],
        lambda tile: lambda dy, w: convolution(dy, w, None, back, not transposed, precision, tile),
        (dy, w),
        ("triton convolution", back, not transposed, precision),
    )
    images = (dy, x) if transposed else (x, dy)
    of_filters = _fastest(
        gradient_tiles(*images, w, geometry)[: None if needs[1] else 1],
        lambda tile: lambda x, dy, w: filter_gradient(x, dy, w, geometry, precision, tile),
        (*images, w),
        ("triton filters", geometry[:7], precision),
    )
    found = [forward, of_input, of_filters]
    if not (x.is_cuda and torch.cuda.is_current_stream_capturing()) and backward_pass() == -1:
        _known[key] = found  # else nothing was measured
    return found


def _fastest(
    options: list[Tile], call: Callable[[Tile], Callable[..., Tensor]], inputs: Sequence[Tensor | None], facts: Any
) -> Tile:
    """Return the fastest of `options` on a GPU, else the first."""
    if not options or len(options) == 1 or not inputs[0].is_cuda or 0 in inputs[0].shape:  # type: ignore[union-attr]
        return options[0]
    named = {" ".join(map(str, tile)): tile for tile in options}
    ways = {name: call(tile) for name, tile in named.items()}
    return named[fastest(facts[0], ways, inputs, str(facts[1:]))]


def tiles(x: Tensor, w: Tensor, geometry: Sequence[int], transposed: bool) -> list[Tile]:
    """List the tiles to try for a convolution; the first one is a good guess."""
    SH, SW, G, YH, YW = (geometry[i] for i in (0, 1, 6, 7, 8))
    IN, OUT = x.size(2) // G, w.size(2) if transposed else w.size(1) // G
    taps = w.size(3) * w.size(4)
    classes = SH * SW if transposed else 1
    pixels = x.size(1) * (-(-YH // SH) * -(-YW // SW) if transposed else YH * YW)
    BK = _power(taps * IN if IN < FEW else IN, 32 if x.dtype == torch.float32 else 64)
    packed = int(taps > 1 and IN >= FEW)
    found, busy = [], []
    for rows, columns, warps, stages in _FLAT_SHAPES if IN < FEW else _SHAPES:
        BM, BN = _power(pixels, rows), _power(OUT, columns)
        if columns == 128 != BN:
            continue  # eight warps for less than they are for
        tile = [BM, BN, BK, warps, stages, packed]
        found.append(tile)
        if -(-pixels // BM) * -(-OUT // BN) * len(x) * G * classes >= _PROGRAMS // 4:
            busy.append(tile)
    found = _unlike(busy or found[-1:])[:2]
    if len(x) * pixels * IN * taps * OUT * G < _LITTLE:
        return found[:1]
    if packed and pixels <= _FEW_PIXELS:  # most of the bytes are the filters'
        least = [*found[-1][:5], 0]
        found += [least, [*least[:2], min(2 * BK, _power(IN, 2 * BK)), 4, 3, 0]]
        if transposed:
            found.append([*least[:5], 2])
    return _unlike(found)


# On an H100 the largest that keep all multiprocessors busy are the fastest, or next to it.
_SHAPES = ((128, 128, 8, 3), (128, 64, 4, 3), (64, 64, 4, 4), (64, 32, 4, 4), (32, 32, 4, 4))
_FLAT_SHAPES = ((128, 64, 8, 3), (128, 64, 4, 3), (64, 64, 4, 4), (32, 32, 4, 4))
_PROGRAMS = 528  # four for each multiprocessor of the largest GPUs
_FEW_PIXELS = 256
_LITTLE = 5e7  # multiplications, below which tiles differ by less time than it takes to measure them
# Hopper's products of warp groups take float32 from shared memory in one order only, which is not the one that it comes
# in here: on an H100, 32 rows, which have the products of single warps, took half of the time of 64. So have 2 warps.
_GRADIENT_SHAPES = ((64, 64, 32, 2), (32, 128, 32, 4), (32, 64, 64, 4), (128, 64, 32, 2), (32, 32, 64, 4))
_GRADIENT_SHAPES_16 = ((64, 64, 64, 4), (128, 64, 64, 4), (64, 128, 64, 4), (32, 32, 64, 4))


def gradient_tiles(x: Tensor, dy: Tensor, w: Tensor, geometry: Sequence[int]) -> list[Tile]:
    """List the tiles to try for the gradient of filters; the first one is a good guess."""
    G = geometry[6]
    B, IN, OUT = len(x), x.size(2) // G, dy.size(2) // G
    pixels = x.size(1) * dy.size(3) * dy.size(4)
    many = max(1, math.prod(b - a for a, b in reached(w.shape[3:], geometry, x.shape[3:], dy.shape[3:])))
    flat = IN < FEW
    columns = many * IN if flat else IN
    shapes: Sequence[tuple[int, ...]] = _GRADIENT_SHAPES if x.dtype == torch.float32 else _GRADIENT_SHAPES_16
    if B * pixels * columns * (1 if flat else many) * OUT * G < _LITTLE:
        shapes = shapes[-1:]
    found: list[Tile] = []
    for most, across, depth, warps in shapes:
        BM, BN = _power(OUT, most), _power(columns, across)
        programs = -(-OUT // BM) * -(-columns // BN) * (1 if flat else many) * B * G
        parts = max(1, min(-(-_PROGRAMS // 2 // programs), pixels // (8 * depth), 32))
        if parts == 1 and w.stride(2) == 1:
            parts = 0  # neighbours are written at a time as it is
        found.append([BM, BN, depth, warps, 3, parts])
    found = _unlike(found)[:4]
    if found[0][5] == 1 and len(shapes) > 1:
        found.append([*found[0][:5], 0])
    return found


def _power(size: int, most: int) -> int:
    """Return the power of 2 that covers `size`, between 16 and `most`."""
    return max(16, min(most, 1 << max(size - 1, 0).bit_length()))


def _unlike(found: list[Tile]) -> list[Tile]:
    return [tile for i, tile in enumerate(found) if tile not in found[:i]]
