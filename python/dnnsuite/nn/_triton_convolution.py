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
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from .._torch import backward_pass
from ..ops.library import eager
from .measured import fastest

__all__ = ["convolve", "gradient_tiles", "precision", "takes", "tiles"]

Tile = list[int]
"""Rows, columns, depth, warps, stages, and parts of a gradient's sum, or 1 if filters are first laid out anew."""
Steps = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
"""Stride, padding, dilation."""

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_FEW = 16  # channels, below which taps and channels are one dimension
_MOST, _MOST_IN_GRID = 2**31 - 1, 65535


def _interpreted() -> bool:
    return os.environ.get("TRITON_INTERPRET") == "1"


@cache
def _installed() -> bool:
    return importlib.util.find_spec("triton") is not None


def takes(x: Tensor, weight: Tensor, bias: Tensor | None, groups: int) -> bool:
    """Return True if `convolve` can compute this here. Convolutions of single channels are left to others: products
    of matrices would be 16 times too large."""
    cuda = x.device.type == "cuda"
    here = torch.cuda.get_device_capability(x.device) >= (8, 0) if cuda else _interpreted()
    if not here or not _installed() or (groups > 1 and weight.size(2) == 1):
        return False
    given = [t for t in (x, weight, bias) if t is not None]
    cast = torch.is_autocast_enabled(x.device.type)
    alike = cast or all(t.dtype == x.dtype for t in given)
    spans = (sum((n - 1) * s for n, s in zip(t.shape[1:], t.stride()[1:], strict=True)) for t in given)
    return alike and all(t.dtype in _DTYPES for t in given) and max(spans) < _MOST


def convolve(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    steps: Steps,
    groups: int = 1,
    extra: Sequence[int] | None = None,
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
        x, weight, bias = (
            _once(partial(Tensor.to, dtype=dtype), x),
            weight.to(dtype),
            bias if bias is None else bias.to(dtype),
        )
    x = _last(x)
    size = _size(x, weight, steps, extra)
    geometry = [*sum(steps, ()), groups, *size]
    products = precision()
    chosen = _chosen(x, weight, bias, geometry, extra is not None, products)
    result: Tensor = _eager(x, weight, bias, geometry, extra is not None, products, *chosen)
    return result


def precision() -> str:
    """Name how products of float32 are formed in convolutions: "tf32" or "tf32x3"."""
    try:
        tf32 = bool(torch.backends.cudnn.allow_tf32)
    except RuntimeError:  # it was set by torch's newer names
        tf32 = bool(torch.backends.cudnn.conv.fp32_precision == "tf32")  # type: ignore[attr-defined]
    return "tf32" if tf32 else "tf32x3"


def _last(x: Tensor) -> Tensor:
    """Lay `[B, N, C, H, W]` out with channels last, unless it is or they are few; what models share stays so."""
    if x.stride(2) == 1 or x.size(2) < _FEW:
        return x
    return _once(lambda own: own.movedim(2, -1).contiguous().movedim(-1, 2), x)


def _once(change: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Change what models share once."""
    if x.size(0) > 1 and x.stride(0) == 0:
        return change(x[:1]).expand_as(x)
    return change(x)


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


# ── operators ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _gathered(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    geometry: Sequence[int],
    transposed: bool,
    precision: str,
    tile: Tile,
) -> Tensor:
    SH, SW, PH, PW, DH, DW, G, YH, YW = geometry
    B, N, C, XH, XW = x.shape
    OUT = w.size(2) if transposed else w.size(1) // G
    IN = C // G
    y = x.new_empty(B, N, YH, YW, G * OUT)
    BM, BN, BK, warps, stages, packed = tile
    if not y.numel():
        return y.movedim(-1, 2)
    if B * G > _MOST_IN_GRID or y[0].numel() > _MOST:
        raise NotImplementedError(
            f"Triton convolutions of {B} models of {G} groups and results {list(y.shape)}"
        )
    down, across = _reached(
        w.shape[3:], geometry, (YH, YW) if transposed else (XH, XW), (XH, XW) if transposed else (YH, YW)
    )
    w, PH, PW = w[..., slice(*down), slice(*across)], PH - down[0] * DH, PW - across[0] * DW
    R, S = w.shape[3:]
    beyond = (YH - 1) * SH - PH + (R - 1) * DH >= XH or (YW - 1) * SW - PW + (S - 1) * DW >= XW
    if packed:
        order = (0, 2, 3, 4, 1) if transposed else (0, 1, 3, 4, 2)
        back = (0, 4, 1, 2, 3) if transposed else (0, 1, 4, 2, 3)
        w = w.permute(order).contiguous().permute(back)
    wb, w1, w2, wr, ws = _steps_of(w)
    step_h, step_w = (SH // math.gcd(SH, DH), SW // math.gcd(SW, DW)) if transposed else (1, 1)
    rows = N * (-(-YH // SH) * -(-YW // SW) if transposed else YH * YW)
    grid = (-(-rows // BM) * -(-OUT // BN), B * G, SH * SW if transposed else 1)
    with _on(x):
        _kernels().gathered[grid](
            x, w, bias if bias is None else bias.contiguous(), y,
            *_steps_of(x),
            wb, (IN if transposed else OUT) * w1, *((w2, w1) if transposed else (w1, w2)), wr, ws,
            N, XH, XW, YH, YW, R, S, SH, SW, PH, PW, DH, DW, step_h, step_w, G, IN, OUT,
            TRANSPOSED=transposed, FLAT=IN < _FEW, CHECKED=transposed or PH > 0 or PW > 0 or beyond, EVEN=IN % BK == 0,
            TAPS_FIRST=bool(packed) or R * S == 1, BIASED=bias is not None, WIDE=_interpreted(),
            PRECISION=_precision(x, precision), BM=BM, BN=BN, BK=BK, num_warps=warps, num_stages=stages,
        )  # fmt: skip
    return y.movedim(-1, 2)


def _filter_gradient(
    x: Tensor, dy: Tensor, taps: Sequence[int], geometry: Sequence[int], precision: str, tile: Tile
) -> Tensor:
    """Compute the gradient of the filters of a convolution of x, not transposed, from that of its result."""
    SH, SW, PH, PW, DH, DW, G = geometry[:7]
    B, N, C, XH, XW = x.shape
    outputs, YH, YW = dy.shape[2:]
    IN, OUT = C // G, outputs // G
    BM, BN, BK, warps, stages, split = tile
    out = x.new_empty((B, outputs, IN, *taps))
    if not out.numel():
        return out
    down, across = _reached(taps, geometry, (XH, XW), (YH, YW))
    part = out[..., slice(*down), slice(*across)]
    R, S = part.shape[3:]
    if not dy.numel() or not part.numel():
        return out.zero_()
    if part.numel() < out.numel():
        out.zero_()
    PH, PW = PH - down[0] * DH, PW - across[0] * DW
    beyond = (YH - 1) * SH - PH + (R - 1) * DH >= XH or (YW - 1) * SW - PW + (S - 1) * DW >= XW
    parts = x.new_empty((split, *part.shape), dtype=torch.float32) if split > 1 else part[None]
    flat = IN < _FEW
    columns = -(-R * S * IN // BN) if flat else R * S * -(-IN // BN)
    grid = (-(-OUT // BM) * columns, B * G, split)
    with _on(x):
        _kernels().filter_gradient[grid](
            x, dy, parts, *_steps_of(x), *_steps_of(dy),
            N, XH, XW, YH, YW, R, S, SH, SW, PH, PW, DH, DW, G, IN, OUT, split, *parts.stride(),
            FLAT=flat, CHECKED=PH > 0 or PW > 0 or beyond, WIDE=_interpreted(), PRECISION=_precision(x, precision),
            BM=BM, BN=BN, BK=BK, num_warps=warps, num_stages=stages,
        )  # fmt: skip
    if split > 1:
        part.copy_(parts.sum(0))
    return out


def _reached(
    taps: Sequence[int], geometry: Sequence[int], images: Sequence[int], results: Sequence[int]
) -> list[tuple[int, int]]:
    """Find the first tap and the one after the last, down and across, under which a pixel of an image lies at all.

    Maps of the last layers are often smaller than filters, and most bytes are the filters' there.
    """
    found = []
    for i in range(2):
        stride, padding, dilation = geometry[i], geometry[2 + i], geometry[4 + i]
        first = max(0, -(((results[i] - 1) * stride - padding) // dilation))
        last = min(taps[i], (images[i] - 1 + padding) // dilation + 1)
        found.append((min(first, last), last))
    return found


def _steps_of(x: Tensor) -> list[int]:
    """List strides, such that those which do not matter are no reason to compile anew."""
    steps = [0 if size == 1 else step for size, step in zip(x.shape, x.stride(), strict=True)]
    return [*steps[:2], steps[2] or 1, *steps[3:]]


def _precision(x: Tensor, precision: str) -> str:
    return precision if x.dtype == torch.float32 else "ieee"


@cache
def _kernels() -> Any:
    from . import _triton_kernels

    return _triton_kernels


def _on(x: Tensor) -> Any:
    """Context manager: Triton launches on the current device."""
    return torch.cuda.device(x.device) if x.is_cuda else nullcontext()


def _launched(compute: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Let whatever stops Triton, whose compiler has errors of many kinds, be a RuntimeError as torch's are: another
    tile, or another way, is taken then."""

    def call(*args: Any) -> Tensor:
        try:
            return compute(*args)
        except RuntimeError:
            raise
        except Exception as error:
            raise RuntimeError(f"Triton, tile {args[-1]}: {type(error).__name__}: {error}") from error

    return call


def _no_gathered(
    x: Tensor, w: Tensor, bias: Any, geometry: Sequence[int], transposed: bool, *_: Any
) -> Tensor:
    channels = geometry[6] * w.size(2) if transposed else w.size(1)
    return x.new_empty(*x.shape[:2], *geometry[7:], channels).movedim(-1, 2)


def _no_gradient(x: Tensor, dy: Tensor, taps: Sequence[int], geometry: Sequence[int], *_: Any) -> Tensor:
    return x.new_empty(len(x), dy.size(2), x.size(2) // geometry[6], *taps)


_library = torch.library.Library("dnnsuite", "FRAGMENT")
_library.define(
    "triton_convolution(Tensor x, Tensor w, Tensor? bias, int[] geometry, bool transposed, str precision, int[] tile) "
    "-> Tensor"
)
_library.define(
    "triton_filter_gradient(Tensor x, Tensor dy, int[] taps, int[] geometry, str precision, int[] tile) -> Tensor"
)
for _key in ("CPU", "CUDA"):
    _library.impl("triton_convolution", _launched(_gathered), _key)
    _library.impl("triton_filter_gradient", _launched(_filter_gradient), _key)
_library.impl("triton_convolution", _no_gathered, "Meta")
_library.impl("triton_filter_gradient", _no_gradient, "Meta")
_convolution = torch.ops.dnnsuite.triton_convolution.default
_gradient = torch.ops.dnnsuite.triton_filter_gradient.default


# ── autograd ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _forward(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    geometry: list[int],
    transposed: bool,
    precision: str,
    *tiles: Tile,
) -> Tensor:
    y: Tensor = _convolution(x, w, bias, geometry, transposed, precision, tiles[0])
    return y


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
        dx = _convolution(dy, w, None, back, not ctx.transposed, ctx.precision, ctx.tiles[1])
    if needs[1]:
        images = (dy, x) if ctx.transposed else (x, dy)
        dw = _gradient(*images, w.shape[3:], ctx.geometry, ctx.precision, ctx.tiles[2])
    if needs[2]:
        db = dy.sum((1, 3, 4)).to(dy.dtype)  # autocast would leave it in 32 bits
    return dx, dw, db, *(None,) * (3 + len(ctx.tiles))


def _composition(
    x: Tensor, w: Tensor, bias: Tensor | None, geometry: list[int], transposed: bool, *_: Any
) -> Tensor:
    """The same by torch, model by model, for gradients of gradients."""
    stride, padding, dilation = geometry[:2], geometry[2:4], geometry[4:6]
    extra = [0, 0]
    if transposed:
        least = _size(x, w, (tuple(stride), tuple(padding), tuple(dilation)), (0, 0))  # type: ignore[arg-type]
        extra = [size - small for size, small in zip(geometry[7:], least, strict=True)]
    biases: Any = [None] * len(x) if bias is None else bias.unbind(0)
    found = [
        torch.convolution(*own, stride, padding, dilation, transposed, extra, geometry[6])
        for own in zip(x.unbind(0), w.unbind(0), biases, strict=True)
    ]
    return torch.stack(found)


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
    back, taps = [*geometry[:7], *x.shape[3:]], list(w.shape[3:])
    forward = _fastest(
        tiles(x, w, geometry, transposed),
        lambda tile: lambda x, w, b: _convolution(x, w, b, geometry, transposed, precision, tile),
        (x, w, bias),
        ("triton convolution", geometry, transposed, precision),
    )
    of_input = _fastest(
        tiles(dy, w, back, not transposed)[: None if needs[0] else 1],
        lambda tile: lambda dy, w: _convolution(dy, w, None, back, not transposed, precision, tile),
        (dy, w),
        ("triton convolution", back, not transposed, precision),
    )
    images = (dy, x) if transposed else (x, dy)
    of_filters = _fastest(
        gradient_tiles(*images, taps, geometry)[: None if needs[1] else 1],
        lambda tile: lambda x, dy: _gradient(x, dy, taps, geometry, precision, tile),
        images,
        ("triton filters", geometry[:7], taps, precision),
    )
    found = [forward, of_input, of_filters]
    if not (x.is_cuda and torch.cuda.is_current_stream_capturing()) and backward_pass() == -1:
        _known[key] = found  # else nothing was measured
    return found


def _fastest(
    options: list[Tile],
    call: Callable[[Tile], Callable[..., Tensor]],
    inputs: Sequence[Tensor | None],
    facts: Any,
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
    BK = _power(taps * IN if IN < _FEW else IN, 32 if x.dtype == torch.float32 else 64)
    packed = int(taps > 1 and IN >= _FEW)
    found, busy = [], []
    for rows, columns, warps, stages in _SHAPES:
        BM, BN = _power(pixels, rows), _power(OUT, columns)
        tile = [BM, BN, BK, warps, stages, packed]
        found.append(tile)
        if -(-pixels // BM) * -(-OUT // BN) * len(x) * G * classes >= _PROGRAMS // 4:
            busy.append(tile)
    found = _unlike(busy or found[-2:])[:4]
    return _unlike([*found, [*found[0][:5], 0]])


_SHAPES = ((128, 64, 4, 3), (64, 64, 4, 4), (128, 128, 8, 3), (64, 32, 4, 4), (32, 32, 4, 4))
_PROGRAMS = 528  # four for each multiprocessor of the largest GPUs


def gradient_tiles(x: Tensor, dy: Tensor, taps: Sequence[int], geometry: Sequence[int]) -> list[Tile]:
    """List the tiles to try for the gradient of filters; the first one is a good guess."""
    G = geometry[6]
    B, IN, OUT = len(x), x.size(2) // G, dy.size(2) // G
    pixels = x.size(1) * dy.size(3) * dy.size(4)
    many = taps[0] * taps[1]
    flat = IN < _FEW
    columns = many * IN if flat else IN
    BK = 32 if x.dtype == torch.float32 else 64
    found = []
    for most, across, depth, warps in ((64, 64, BK, 4), (128, 64, BK, 4), (64, 128, BK, 4), (32, 32, 64, 4)):
        BM, BN = _power(OUT, most), _power(columns, across)
        programs = -(-OUT // BM) * -(-columns // BN) * (1 if flat else many) * B * G
        parts = min(-(-_PROGRAMS // programs), max(1, pixels // (8 * depth)), 32)
        found.append([BM, BN, depth, warps, 3, parts])
        if parts > 4:
            found.append([BM, BN, depth, warps, 3, parts // 4])
    return _unlike(found)[:5]


def _power(size: int, most: int) -> int:
    """Return the power of 2 that covers `size`, between 16 and `most`."""
    return max(16, min(most, 1 << max(size - 1, 0).bit_length()))


def _unlike(found: list[Tile]) -> list[Tile]:
    return [tile for i, tile in enumerate(found) if tile not in found[:i]]
