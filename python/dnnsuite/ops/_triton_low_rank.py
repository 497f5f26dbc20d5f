# SPDX-License-Identifier: MIT
"""Two Triton kernels for low-rank updates of B models, on rows that are grouped by model.

`update` multiplies rows by a matrix of few columns, and its result by another matrix, and adds that to what is there:
the rows are read once, and what lies between stays in registers. `gradient` sums the products of rows and of those few
columns. Sums are in float32, in an order that a model's own sizes decide. Importing this module imports Triton.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from .shared import Maybe

_MULTIPROCESSORS = 132  # of a large GPU: programs for which to look in small arrays
_BLOCK = 64  # inputs and outputs of a product


@triton.jit
def _rows(offsets, model, N, RAGGED: tl.constexpr):
    """Find a model's first row, and how many it has."""
    first, rows = 0, N
    if RAGGED:
        first = tl.load(offsets + model)
        rows = tl.load(offsets + model + 1) - first
    return first, rows


@triton.jit(do_not_specialize=["N", "R"])
def _update(
    x, down, up, y, out, hidden, scale, offsets, N, R, IN, OUT,
    xb, xn, db, di, dr, ub, uo, ur, yb, yn, ob, on, hb, hn,
    RAGGED: tl.constexpr, ADDS: tl.constexpr, PARTS: tl.constexpr, PRECISION: tl.constexpr,
    BM: tl.constexpr, BLOCK: tl.constexpr, RANK: tl.constexpr,
):  # fmt: skip
    """Compute hidden = x down and out = y + scale hidden up for BM rows of a model and one of PARTS of the columns.

    Strides are of (model, row) or (model, input or output, rank); what is next to each other in x, y, out and hidden
    lies so in memory. ADDS: there is a y.
    """
    model = tl.program_id(1).to(tl.int64)
    part = tl.program_id(0) % PARTS
    begin = tl.program_id(0) // PARTS * BM
    first, rows = _rows(offsets, model, N, RAGGED)
    if begin < rows:
        row = begin + tl.arange(0, BM)
        own = (row < rows)[:, None]
        at = (first + row).to(tl.int64)[:, None]
        rank = tl.arange(0, RANK)[None, :]
        h = tl.zeros((BM, RANK), tl.float32)
        for begin_i in range(0, IN, BLOCK):
            i = begin_i + tl.arange(0, BLOCK)
            xs = tl.load(x + model * xb + at * xn + i[None, :], mask=own & (i < IN)[None, :], other=0.0)
            ds = tl.load(
                down + model * db + i[:, None] * di + rank * dr, mask=(i < IN)[:, None] & (rank < R), other=0.0
            )
            h = tl.dot(xs.to(tl.float32), ds.to(tl.float32), h, input_precision=PRECISION)
        if part == 0:
            tl.store(hidden + model * hb + at * hn + rank, h, mask=own & (rank < R))
        h *= tl.load(scale + model).to(tl.float32)
        for begin_o in range(part * BLOCK, OUT, PARTS * BLOCK):
            o = begin_o + tl.arange(0, BLOCK)
            there = own & (o < OUT)[None, :]
            us = tl.load(
                up + model * ub + o[None, :] * uo + tl.arange(0, RANK)[:, None] * ur,
                mask=(tl.arange(0, RANK) < R)[:, None] & (o < OUT)[None, :], other=0.0,
            )  # fmt: skip
            found = tl.dot(h, us.to(tl.float32), input_precision=PRECISION)
            if ADDS:
                found += tl.load(y + model * yb + at * yn + o[None, :], mask=there, other=0.0).to(tl.float32)
            tl.store(out + model * ob + at * on + o[None, :], found.to(out.dtype.element_ty), mask=there)


@triton.jit(do_not_specialize=["N", "R"])
def _gradient(
    z, hidden, out, scale, offsets, N, R, IN,
    zb, zn, hb, hn, ob, oi, orank,
    RAGGED: tl.constexpr, PRECISION: tl.constexpr, BM: tl.constexpr, BLOCK: tl.constexpr, RANK: tl.constexpr,
):  # fmt: skip
    """Compute out = scale zᵀ hidden of a model, for BLOCK of the columns of z; BM rows at a time."""
    model = tl.program_id(1).to(tl.int64)
    first, rows = _rows(offsets, model, N, RAGGED)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    rank = tl.arange(0, RANK)[None, :]
    total = tl.zeros((BLOCK, RANK), tl.float32)
    for begin in range(0, rows, BM):
        row = begin + tl.arange(0, BM)
        own = (row < rows)[:, None]
        at = (first + row).to(tl.int64)[:, None]
        zs = tl.load(z + model * zb + at * zn + i[None, :], mask=own & (i < IN)[None, :], other=0.0).to(tl.float32)
        hs = tl.load(hidden + model * hb + at * hn + rank, mask=own & (rank < R), other=0.0)
        total = tl.dot(tl.trans(zs), hs, total, input_precision=PRECISION)
    total *= tl.load(scale + model).to(tl.float32)
    tl.store(
        out + model * ob + i[:, None] * oi + rank * orank, total.to(out.dtype.element_ty),
        mask=(i < IN)[:, None] & (rank < R),
    )  # fmt: skip


def _launch(kernel: Any, grid: tuple[int, int], like: Tensor, *given: Any, **options: Any) -> None:
    precision = "tf32" if torch.backends.cuda.matmul.allow_tf32 else "tf32x3"
    with torch.cuda.device(like.device) if like.is_cuda else nullcontext():
        kernel[grid](*given, PRECISION=precision, BLOCK=_BLOCK, num_warps=4, **options)


def _by_model(x: Tensor, offsets: Tensor | None) -> tuple[Tensor, int, int]:
    """Return rows with neighbours next to each other, and the steps from model to model and from row to row."""
    x = x if x.stride(-1) == 1 else x.contiguous()
    return x, 0 if offsets is not None else x.stride(0), x.stride(-2)


def _padded(rank: int) -> int:
    return max(16, triton.next_power_of_2(rank))


def _height(most: int) -> int:
    return 64 if most > 32 else 32 if most > 16 else 16


def update(
    y: Maybe, x: Tensor, down: Tensor, up: Tensor, scale: Tensor, offsets: Maybe, most: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Compute x downᵀ, and y + scale of it times upᵀ.

    Args:
        y: `[B, N, O]`; None for zeros.
        x: `[B, N, I]`.
        down: `[B, R, I]`.
        up: `[B, O, R]`.
        scale: `[B]`.
        offsets: beginnings of each model's rows, int64 `[B + 1]`, where x is `[L, I]` and y `[L, O]`.
        most: rows of the model that has most.
        dtype: type of the sum.

    Returns:
        (the sum `[B, N, O]` or `[L, O]`; x downᵀ `[B, N, R]` or `[L, R]` in float32).
    """
    B, R, IN = down.shape
    OUT = up.shape[1]
    x, xb, xn = _by_model(x, offsets)
    out = x.new_empty((*x.shape[:-1], OUT), dtype=dtype)
    hidden = x.new_empty((*x.shape[:-1], R), dtype=torch.float32)
    if not hidden.numel() or not out.numel():
        return out.zero_() if y is None else out.copy_(y), hidden
    y, yb, yn = (out, 0, 0) if y is None else _by_model(y, offsets)
    adds = y is not out
    height = _height(most)
    blocks = -(-most // height)
    parts = max(1, min(2 * _MULTIPROCESSORS // (B * blocks), -(-OUT // _BLOCK)))
    strides = [out, hidden]
    ob, on, hb, hn = (step for t in strides for step in (0 if offsets is not None else t.stride(0), t.stride(-2)))
    _launch(
        _update, (blocks * parts, B), x,
        x, down, up, y, out, hidden, scale, offsets, most, R, IN, OUT,
        xb, xn, down.stride(0), down.stride(2), down.stride(1), up.stride(0), up.stride(1), up.stride(2),
        yb, yn, ob, on, hb, hn,
        RAGGED=offsets is not None, ADDS=adds, PARTS=parts, BM=height, RANK=_padded(R),
    )  # fmt: skip
    return out, hidden


def gradient(
    z: Tensor, hidden: Tensor, scale: Tensor, like: Tensor, offsets: Tensor | None, most: int, transposed: bool
) -> Tensor:
    """Compute scale zᵀ hidden of each model in `like`'s dtype: z `[B, N, I]`, hidden `[B, N, R]` to `[B, I, R]`.

    Args:
        offsets: beginnings of rows, as for `update`.
        most: rows of the model that has most.
        transposed: True to compute `[B, R, I]`.
    """
    B, R, IN = len(scale), hidden.shape[-1], z.shape[-1]
    out = like.new_zeros((B, R, IN) if transposed else (B, IN, R))
    if not out.numel() or not z.numel():
        return out
    z, zb, zn = _by_model(z, offsets)
    hidden, hb, hn = _by_model(hidden, offsets)
    _launch(
        _gradient, (-(-IN // _BLOCK), B), z,
        z, hidden, out, scale, offsets, most, R, IN, zb, zn, hb, hn,
        out.stride(0), out.stride(2 if transposed else 1), out.stride(1 if transposed else 2),
        RAGGED=offsets is not None, BM=_height(most), RANK=_padded(R),
    )  # fmt: skip
    return out
