# SPDX-License-Identifier: MIT
"""The operators that launch the Triton kernels of convolutions: `dnnsuite::triton_convolution`, forward, transposed or
the gradient of an input, and `dnnsuite::triton_filter_gradient`. A recording sees them as it sees torch's.

Triton is imported by the first launch. Without a GPU they run in Triton's interpreter alone (TRITON_INTERPRET=1).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor

Tile = list[int]
"""Rows, columns, depth, warps, stages, and a number. For `convolution` it says how filters are first laid out anew: 0
not, 1 with those channels next to each other that are summed, 2 with the inputs'. For `filter_gradient` it says of how
many parts the sum is, which are then added; 0 if there is one, written where the gradient lies."""

FEW = 16
"""Channels, below which taps and channels are one dimension."""
MOST = 2**31 - 1
"""Elements of one model, which the kernels count in 32 bits."""
_MOST_IN_GRID = 65535


def interpreted() -> bool:
    return os.environ.get("TRITON_INTERPRET") == "1"


def _new_result(x: Tensor, channels: int, height: int, width: int) -> Tensor:
    """Make `[B, N, C, H, W]` with channels last, which is no view: code may go on in place, and autograd forbids that
    for views of what an operator has made."""
    B, N = x.shape[:2]
    image = height * width * channels
    return x.new_empty_strided((B, N, channels, height, width), (N * image, image, 1, width * channels, channels))


def _gathered(
    x: Tensor, w: Tensor, bias: Tensor | None, geometry: Sequence[int], transposed: bool, precision: str, tile: Tile
) -> Tensor:
    SH, SW, PH, PW, DH, DW, G, YH, YW = geometry
    B, N, C, XH, XW = x.shape
    OUT = w.size(2) if transposed else w.size(1) // G
    IN = C // G
    y = _new_result(x, G * OUT, YH, YW)
    BM, BN, BK, warps, stages, packed = tile
    if not y.numel():
        return y
    if B * G > _MOST_IN_GRID or y[0].numel() > MOST:
        raise NotImplementedError(f"Triton convolutions of {B} models of {G} groups and results {list(y.shape)}")
    down, across = reached(
        w.shape[3:], geometry, (YH, YW) if transposed else (XH, XW), (XH, XW) if transposed else (YH, YW)
    )
    w, PH, PW = w[..., slice(*down), slice(*across)], PH - down[0] * DH, PW - across[0] * DW
    R, S = w.shape[3:]
    if packed:
        outer = transposed and packed == 1
        order = (0, 2, 3, 4, 1) if outer else (0, 1, 3, 4, 2)
        back = (0, 4, 1, 2, 3) if outer else (0, 1, 4, 2, 3)
        w = w.permute(order).contiguous().permute(back)
    wb, wo, wc, wr, ws = _steps_of(w)
    wg = (IN if transposed else OUT) * wo
    if transposed:
        wo, wc = wc, wo
    if transposed and (SH, SW) == (1, 1):  # a convolution whose taps are counted backwards
        transposed, PH, PW, DH, DW = False, -PH, -PW, -DH, -DW
    checked = transposed or _leaves((R, S), (SH, SW, PH, PW, DH, DW), (XH, XW), (YH, YW))
    step_h, step_w = (SH // math.gcd(SH, DH), SW // math.gcd(SW, DW)) if transposed else (1, 1)
    rows = N * (-(-YH // SH) * -(-YW // SW) if transposed else YH * YW)
    grid = (-(-rows // BM) * -(-OUT // BN), B * G, SH * SW if transposed else 1)
    last, XV, steps = _in_units(x, IN)
    first = 0 if wc == 1 else 1 if wo == 1 else 2
    WV = _unit(w, *((wb, wg, wo, wr, ws, IN), (wb, wg, wc, wr, ws, OUT), (1,))[first])
    OV = _unit(y, OUT)
    with _on(x):
        _kernels().gathered[grid](
            x, w, bias if bias is None else bias.contiguous(), y,
            *steps, *(step // WV for step in (wb, wg, wo, wc, wr, ws)),
            N, XH, XW, YH, YW, R, S, SH, SW, PH, PW, DH, DW, step_h, step_w, G, IN // XV, OUT // OV,
            TRANSPOSED=transposed, FLAT=IN < FEW, CHECKED=checked, XLAST=last, XV=XV, WORDER=first, WV=WV, OV=OV,
            TAPS_FIRST=bool(packed) or R * S == 1, BIASED=bias is not None, WIDE=interpreted(),
            PRECISION=_precision(x, precision), BM=BM, BN=BN, BK=BK, num_warps=warps, num_stages=stages,
        )  # fmt: skip
    return y


def _filter_gradient(x: Tensor, dy: Tensor, w: Tensor, geometry: Sequence[int], precision: str, tile: Tile) -> Tensor:
    """Compute the gradient of the filters w of a convolution of x, not transposed, from that of its result."""
    SH, SW, PH, PW, DH, DW, G = geometry[:7]
    B, N, C, XH, XW = x.shape
    outputs, YH, YW = dy.shape[2:]
    IN, OUT = C // G, outputs // G
    BM, BN, BK, warps, stages, parts = tile
    out = torch.empty_like(w)
    if not out.numel():
        return out
    down, across = reached(w.shape[3:], geometry, (XH, XW), (YH, YW))
    part = out[..., slice(*down), slice(*across)]
    R, S = part.shape[3:]
    if not dy.numel() or not part.numel():
        return out.zero_()
    PH, PW = PH - down[0] * DH, PW - across[0] * DW
    checked = _leaves((R, S), (SH, SW, PH, PW, DH, DW), (XH, XW), (YH, YW))
    sums = part[None]
    if parts:  # where neighbours in memory are written at a time
        sums = x.new_empty((parts, B, outputs, R, S, IN), dtype=torch.float32).permute(0, 1, 2, 5, 3, 4)
    flat = IN < FEW
    columns = -(-R * S * IN // BN) if flat else R * S * -(-IN // BN)
    grid = (-(-OUT // BM) * columns, B * G, len(sums))
    last, XV, steps = _in_units(x, IN)
    dy_last, OV, dy_steps = _in_units(dy, OUT)
    with _on(x):
        _kernels().filter_gradient[grid](
            x, dy, sums, *steps, *dy_steps, N, XH, XW, YH, YW, R, S, SH, SW, PH, PW, DH, DW,
            G, IN // XV, OUT // OV, len(sums), *sums.stride(), FLAT=flat, CHECKED=checked,
            XLAST=last, XV=XV, YLAST=dy_last, OV=OV, OLAST=sums.stride(3) == 1, WIDE=interpreted(),
            PRECISION=_precision(x, precision), BM=BM, BN=BN, BK=BK, num_warps=warps, num_stages=stages,
        )  # fmt: skip
    if not parts:
        if part.numel() < out.numel():
            out.masked_fill_(_others(w, down, across), 0.0)
        return out
    if parts > 1 and out.dtype == sums.dtype and part.numel() == out.numel():
        return torch.sum(sums, 0, out=out)
    found = (sums.sum(0) if parts > 1 else sums[0]).to(out.dtype)
    if R * S == 1 < w.size(3) * w.size(4):  # of the last layers' large filters, written once
        return torch.where(_others(w, down, across), found.new_zeros(()), found, out=out)
    if part.numel() < out.numel():
        out.zero_()
    part.copy_(found)
    return out


def _others(w: Tensor, down: tuple[int, int], across: tuple[int, int]) -> Tensor:
    """Return a mask [R, S] of the taps under which no pixel lies."""
    rows, columns = (torch.arange(n, device=w.device) for n in w.shape[3:])
    inside = (rows >= down[0]) & (rows < down[1])
    return ~(inside[:, None] & (columns >= across[0]) & (columns < across[1]))


def reached(
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


def _leaves(taps: Sequence[int], steps: Sequence[int], images: Sequence[int], results: Sequence[int]) -> bool:
    """Return True if some tap of some result lies outside of the image."""
    for i in range(2):
        stride, padding, dilation = steps[i], steps[2 + i], steps[4 + i]
        ends = sorted((0, (taps[i] - 1) * dilation))
        if ends[0] < padding or (results[i] - 1) * stride - padding + ends[1] >= images[i]:
            return True
    return False


def _steps_of(x: Tensor) -> list[int]:
    """List strides; those which do not matter as 0, or of channels as 1."""
    steps = [0 if size == 1 else step for size, step in zip(x.shape, x.stride(), strict=True)]
    return [*steps[:2], steps[2] or 1, *steps[3:]]


def _unit(x: Tensor, *numbers: int) -> int:
    """Return how many elements of x 16 bytes are if all `numbers` are multiples of it, else 1."""
    unit = 16 // x.element_size()
    return 1 if any(number % unit for number in numbers) else unit


def _in_units(x: Tensor, channels: int) -> tuple[bool, int, list[int]]:
    """Return whether the channels of images lie next to each other, the unit of strides, and strides in units."""
    steps = _steps_of(x)
    last = steps[2] == 1
    unit = _unit(x, *steps[:2], *steps[3:], channels) if last else 1
    return (last, unit, [*(step // unit for step in steps[:2]), steps[2], *(step // unit for step in steps[3:])])


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


def _no_gathered(x: Tensor, w: Tensor, bias: Any, geometry: Sequence[int], transposed: bool, *_: Any) -> Tensor:
    channels = geometry[6] * w.size(2) if transposed else w.size(1)
    return _new_result(x, channels, *geometry[7:])


def _no_gradient(x: Tensor, dy: Tensor, w: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(w)


_library = torch.library.Library("dnnsuite", "FRAGMENT")
_library.define(
    "triton_convolution(Tensor x, Tensor w, Tensor? bias, int[] geometry, bool transposed, str precision, int[] tile) "
    "-> Tensor"
)
_library.define(
    "triton_filter_gradient(Tensor x, Tensor dy, Tensor w, int[] geometry, str precision, int[] tile) -> Tensor"
)
for _key in ("CPU", "CUDA"):
    _library.impl("triton_convolution", _launched(_gathered), _key)
    _library.impl("triton_filter_gradient", _launched(_filter_gradient), _key)
_library.impl("triton_convolution", _no_gathered, "Meta")
_library.impl("triton_filter_gradient", _no_gradient, "Meta")
convolution = torch.ops.dnnsuite.triton_convolution.default
filter_gradient = torch.ops.dnnsuite.triton_filter_gradient.default
