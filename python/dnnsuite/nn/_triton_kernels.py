# SPDX-License-Identifier: MIT
"""Two Triton kernels that convolve images of B models, as products of gathered pixels and filters ("implicit GEMM").

`gathered` forms results and gradients of inputs, `filter_gradient` gradients of filters. Both take any strides and are
fast where channels lie next to each other. A program computes one tile of one group of one model, and sums in float32
in an order that its shapes alone decide. Importing this module imports Triton.
"""

from __future__ import annotations

import triton
import triton.language as tl

# Whole numbers are no reason to compile anew. What a kernel has to know is whether 16 bytes may be copied at a time:
# strides and numbers of channels are given in units of XV, WV or OV elements, which are 1 or 16 bytes.
_SHAPES = ["N", "XH", "XW", "YH", "YW", "R", "S", "SH", "SW", "PH", "PW", "DH", "DW", "G", "IN", "OUT"]
_IMAGES = ["xb", "xn", "xc", "xh", "xw"]


@triton.jit
def _tile_of(pid, rows, columns):
    """Number tiles in bands of 8 rows, so that programs which run at a time share rows and columns in the L2 cache."""
    band = pid // (8 * columns)
    first = band * 8
    height = tl.minimum(rows - first, 8)
    inside = pid - band * 8 * columns
    return first + inside % height, inside // height


@triton.jit
def _taps(offset, taps, step, stride, dilation):
    """Find the taps that reach a result of a transposed convolution, which lies at `offset` (padding added) in one
    dimension: every `step`-th from the first one whose source is whole. Return that tap, how many, and its source."""
    first = taps
    for i in range(taps):
        tap = taps - 1 - i
        first = tl.where((offset - tap * dilation) % stride == 0, tap, first)
    return first, (taps - first + step - 1) // step, (offset - first * dilation) // stride


@triton.jit(do_not_specialize=[*_SHAPES, *_IMAGES, "wb", "wg", "wo", "wc", "wr", "ws", "STEP_H", "STEP_W"])
def gathered(
    x, w, bias, y,
    xb, xn, xc, xh, xw,
    wb, wg, wo, wc, wr, ws,
    N, XH, XW, YH, YW, R, S,
    SH, SW, PH, PW, DH, DW, STEP_H, STEP_W,
    G, IN, OUT,
    TRANSPOSED: tl.constexpr, FLAT: tl.constexpr, CHECKED: tl.constexpr,
    XLAST: tl.constexpr, XV: tl.constexpr, WORDER: tl.constexpr, WV: tl.constexpr, OV: tl.constexpr,
    TAPS_FIRST: tl.constexpr, BIASED: tl.constexpr, WIDE: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Convolve x, whose strides are `xb` to `xw`, to y, contiguous [B, N, YH, YW, G * OUT].

    Each result sums IN channels of the source pixels under its taps. TRANSPOSED: it is the gradient of a convolution's
    input; results whose places differ by multiples of the stride have the same taps, and each such class (third
    dimension of the grid) has its own tiles. FLAT: taps and channels are one dimension, for few channels. CHECKED: a
    tap may lie outside of the image. XLAST: `xc` is 1. WORDER: 0 if `wc` is 1, 1 if `wo` is, else 2. TAPS_FIRST: the
    loop goes through the channels of a tap before the next tap, else through the taps of a block of channels. WIDE:
    products of float32, for Triton's interpreter, which has none of bfloat16.
    """
    IN, OUT = IN * XV, OUT * OV
    xb, xn, xh, xw = xb * XV, xn * XV, xh * XV, xw * XV
    wb, wg, wr, ws = wb * WV, wg * WV, wr * WV, ws * WV
    if XLAST:
        xc = 1
    if WORDER == 0:
        wc = 1
    else:
        wc = wc * WV
    if WORDER == 1:
        wo = 1
    else:
        wo = wo * WV
    group = tl.program_id(1) % G
    model = (tl.program_id(1) // G).to(tl.int64)
    if TRANSPOSED:
        y0, x0 = tl.program_id(2) // SW, tl.program_id(2) % SW
        r0, taps_r, h_off = _taps(y0 + PH, R, STEP_H, SH, DH)
        s0, taps_s, w_off = _taps(x0 + PW, S, STEP_W, SW, DW)
        height, width = (YH - y0 + SH - 1) // SH, (YW - x0 + SW - 1) // SW
        h_inc, w_inc = -(STEP_H * DH // SH), -(STEP_W * DW // SW)
        h_mul, w_mul = 1, 1
        rows = tl.cdiv(N * tl.cdiv(YH, SH) * tl.cdiv(YW, SW), BM)
    else:
        y0, x0, r0, s0 = 0, 0, 0, 0
        taps_r, taps_s, h_off, w_off = R, S, -PH, -PW
        height, width = YH, YW
        h_inc, w_inc = DH, DW
        h_mul, w_mul = SH, SW
        rows = tl.cdiv(N * YH * YW, BM)
    pid_m, pid_n = _tile_of(tl.program_id(0), rows, tl.cdiv(OUT, BN))
    x += model * xb + group * IN * xc
    w += model * wb + group * wg
    m = pid_m * BM + tl.arange(0, BM)
    live = m < N * height * width
    area = tl.maximum(height * width, 1)
    n, pixel = m // area, m % area
    wide = tl.maximum(width, 1)
    t_h, t_w = pixel // wide, pixel % wide
    h, v = t_h * h_mul + h_off, t_w * w_mul + w_off
    at = n * xn + h * xh + v * xw
    o = pid_n * BN + tl.arange(0, BN)
    some = o < OUT
    k = tl.arange(0, BK)
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    if FLAT:
        depth = taps_r * taps_s * IN
        for begin in range(0, depth, BK):
            j = begin + k
            inside = j < depth
            tap, c = j // IN, j % IN
            r, s = tap // taps_s, tap % taps_s
            reached = live[:, None] & inside[None, :]
            if CHECKED:
                down, across = h[:, None] + (r * h_inc)[None, :], v[:, None] + (s * w_inc)[None, :]
                reached = reached & (down >= 0) & (down < XH) & (across >= 0) & (across < XW)
            source = x + at[:, None] + (r * h_inc * xh + s * w_inc * xw + c * xc)[None, :]
            a = tl.load(source, mask=reached, other=0.0)
            filters = w + ((r0 + r * STEP_H) * wr + (s0 + s * STEP_W) * ws + c * wc)[:, None] + (o * wo)[None, :]
            b = tl.load(filters, mask=inside[:, None] & some[None, :], other=0.0)
            if WIDE:
                a, b = a.to(tl.float32), b.to(tl.float32)
            sums = tl.dot(a, b, sums, input_precision=PRECISION)
    else:
        blocks = tl.cdiv(IN, BK)
        taps = taps_r * taps_s
        for i in range(0, taps * blocks):
            if TAPS_FIRST:
                tap, block = i // blocks, i % blocks
            else:
                tap, block = i % taps, i // taps
            r, s = tap // taps_s, tap % taps_s
            c = block * BK + k
            reached = live
            if CHECKED:
                down, across = h + r * h_inc, v + s * w_inc
                reached = reached & (down >= 0) & (down < XH) & (across >= 0) & (across < XW)
            source = x + (at + (r * h_inc * xh + s * w_inc * xw))[:, None] + (c * xc)[None, :]
            filters = w + ((r0 + r * STEP_H) * wr + (s0 + s * STEP_W) * ws) + (c * wc)[:, None] + (o * wo)[None, :]
            inside = c < IN
            a = tl.load(source, mask=reached[:, None] & inside[None, :], other=0.0)
            b = tl.load(filters, mask=inside[:, None] & some[None, :], other=0.0)
            if WIDE:
                a, b = a.to(tl.float32), b.to(tl.float32)
            sums = tl.dot(a, b, sums, input_precision=PRECISION)
    if BIASED:
        sums += tl.load(bias + model * G * OUT + group * OUT + o, mask=some, other=0.0).to(tl.float32)[None, :]
    if TRANSPOSED:
        t_h, t_w = t_h * SH + y0, t_w * SW + x0
    place = ((n * YH + t_h) * YW + t_w) * (G * OUT) + group * OUT
    y += model * N * YH * YW * G * OUT
    tl.store(y + place[:, None] + o[None, :], sums.to(y.dtype.element_ty), mask=live[:, None] & some[None, :])


@triton.jit(
    do_not_specialize=[
        *(*_SHAPES, *_IMAGES, "yb", "yn", "yc", "yh", "yw"),
        *("SPLIT", "op", "ob", "oo", "oc", "orow", "ocol"),
    ]
)
def filter_gradient(
    x, dy, out,
    xb, xn, xc, xh, xw,
    yb, yn, yc, yh, yw,
    N, XH, XW, YH, YW, R, S,
    SH, SW, PH, PW, DH, DW,
    G, IN, OUT, SPLIT, op, ob, oo, oc, orow, ocol,
    FLAT: tl.constexpr, CHECKED: tl.constexpr,
    XLAST: tl.constexpr, XV: tl.constexpr, YLAST: tl.constexpr, OV: tl.constexpr, OLAST: tl.constexpr,
    WIDE: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Compute gradients of filters [SPLIT, B, G * OUT, IN, R, S] with strides `op` to `ocol`: each part sums a part of
    the pixels.

    x are the inputs of a convolution and dy the gradients of its results. Tiles are of OUT times taps and channels:
    FLAT, these are one dimension, for few channels; else each tile is of one tap. XLAST, YLAST, OLAST: `xc`, `yc`, `oc`
    is 1.
    """
    IN, OUT = IN * XV, OUT * OV
    xb, xn, xh, xw = xb * XV, xn * XV, xh * XV, xw * XV
    yb, yn, yh, yw = yb * OV, yn * OV, yh * OV, yw * OV
    if XLAST:
        xc = 1
    if YLAST:
        yc = 1
    if OLAST:
        oc = 1
    group = tl.program_id(1) % G
    model = (tl.program_id(1) // G).to(tl.int64)
    part = tl.program_id(2)
    taps = R * S
    if FLAT:
        pid_m, pid_n = _tile_of(tl.program_id(0), tl.cdiv(OUT, BM), tl.cdiv(taps * IN, BN))
        j = pid_n * BN + tl.arange(0, BN)
        tap, c = j // IN, j % IN
        wanted = j < taps * IN
    else:
        blocks = tl.cdiv(IN, BN)
        pid_m, pid_n = _tile_of(tl.program_id(0), tl.cdiv(OUT, BM), taps * blocks)
        tap = pid_n // blocks
        c = (pid_n % blocks) * BN + tl.arange(0, BN)
        wanted = c < IN
    r, s = tap // S, tap % S
    x += model * xb + group * IN * xc
    dy += model * yb + group * OUT * yc
    o = pid_m * BM + tl.arange(0, BM)
    some = o < OUT
    pixels = N * YH * YW
    many = tl.cdiv(tl.cdiv(pixels, BK), SPLIT) * BK
    first = part * many
    last = tl.minimum(first + many, pixels)
    k = tl.arange(0, BK)
    column = r * DH * xh + s * DW * xw + c * xc
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for begin in range(first, last, BK):
        p = begin + k
        live = p < last
        n, pixel = p // (YH * YW), p % (YH * YW)
        t_h, t_w = pixel // YW, pixel % YW
        h, v = t_h * SH - PH, t_w * SW - PW
        a = tl.load(
            dy + (n * yn + t_h * yh + t_w * yw)[None, :] + (o * yc)[:, None],
            mask=live[None, :] & some[:, None],
            other=0.0,
        )
        at = n * xn + h * xh + v * xw
        if CHECKED:
            if FLAT:
                down, across = h[:, None] + (r * DH)[None, :], v[:, None] + (s * DW)[None, :]
                reached = live[:, None] & (down >= 0) & (down < XH) & (across >= 0) & (across < XW)
            else:
                down, across = h + r * DH, v + s * DW
                reached = (live & (down >= 0) & (down < XH) & (across >= 0) & (across < XW))[:, None]
        else:
            reached = live[:, None]
        b = tl.load(x + at[:, None] + column[None, :], mask=reached & wanted[None, :], other=0.0)
        if WIDE:
            a, b = a.to(tl.float32), b.to(tl.float32)
        sums = tl.dot(a, b, sums, input_precision=PRECISION)
    out += part.to(tl.int64) * op + model * ob
    place = ((group * OUT + o) * oo)[:, None] + (c * oc + r * orow + s * ocol)[None, :]
    tl.store(out + place, sums.to(out.dtype.element_ty), mask=some[:, None] & wanted[None, :])
