# SPDX-License-Identifier: MIT
"""A Triton kernel that draws the numbers of `random_numbers` on a GPU.

A program computes the four words of each of its calls of the generator and writes the numbers that are made of them, 16
places apart. Logarithms are taken in float64: a number near 1 needs its rounding. Importing this module imports Triton.
"""

from __future__ import annotations

import struct
from contextlib import nullcontext

import torch
import triton
import triton.language as tl

_KINDS = ("uniform", "normal", "bernoulli", "exponential")
_CALLS = 256  # of a program
_MOST_IN_GRID = 65535
_TURN = tl.constexpr(6.283185307179586)


@triton.jit
def _number(unit, positive, first, second, KIND: tl.constexpr):
    """Make a number of one of [0, 1), or of one of (0, 1]."""
    if KIND == 0:
        found = first + (second - first) * unit
    elif KIND == 2:
        found = tl.where(unit < first, 1.0, 0.0)
    else:
        found = -tl.log(positive) / first
    return found


@triton.jit(do_not_specialize=["stream_step", "pair_step", "elements", "first", "second"])
def _fill(
    out, rng, stream_step, pair_step, elements, first, second,
    KIND: tl.constexpr, WIDE: tl.constexpr, CALLS: tl.constexpr,
):  # fmt: skip
    """Draw the `elements` numbers of a model, [B, elements]; `first` and `second` are float64 as 64 bits. WIDE: numbers
    of float64, two of each call, else four of float32."""
    model = tl.program_id(1).to(tl.int64)
    call = tl.program_id(0).to(tl.int64) * CALLS + tl.arange(0, CALLS)
    pair = rng + model * stream_step
    key, step = tl.load(pair), tl.load(pair + pair_step) + tl.zeros_like(call)
    a, b, c, d = tl.philox(
        key, call.to(tl.uint32), (call >> 32).to(tl.uint32), step.to(tl.uint32), (step >> 32).to(tl.uint32), 10
    )
    first = first.to(tl.int64).to(tl.float64, bitcast=True)
    second = second.to(tl.int64).to(tl.float64, bitcast=True)
    inside = out + model * elements
    if WIDE:
        place = (call // 16) * 32 + call % 16
        u = ((a >> 5).to(tl.float64) * 67108864.0 + (b >> 6).to(tl.float64)) / 9007199254740992.0
        v = ((c >> 5).to(tl.float64) * 67108864.0 + (d >> 6).to(tl.float64)) / 9007199254740992.0
        if KIND == 1:
            radius, turn = tl.sqrt(-2.0 * tl.log(1.0 - u)), v * _TURN
            x, y = first + second * radius * tl.cos(turn), first + second * radius * tl.sin(turn)
        else:
            x, y = _number(u, 1.0 - u, first, second, KIND), _number(v, 1.0 - v, first, second, KIND)
        tl.store(inside + place, x, mask=place < elements)
        tl.store(inside + place + 16, y, mask=place + 16 < elements)
    else:
        place = (call // 16) * 64 + call % 16
        for pairs in tl.static_range(2):
            if pairs == 0:
                m, n = a, b
            else:
                m, n = c, d
            positive = (m >> 1).to(tl.float64) / 2147483648.0 + 1.0 / 4294967296.0
            if KIND == 1:
                radius, turn = (
                    tl.sqrt(-2.0 * tl.log(positive)).to(tl.float32),
                    n.to(tl.float32) * (_TURN / 4294967296.0),
                )
                scale, centre = second.to(tl.float32), first.to(tl.float32)
                x, y = centre + scale * radius * tl.cos(turn), centre + scale * radius * tl.sin(turn)
            else:
                other = (n >> 1).to(tl.float64) / 2147483648.0 + 1.0 / 4294967296.0
                x = _number((m >> 8).to(tl.float64) / 16777216.0, positive, first, second, KIND)
                y = _number((n >> 8).to(tl.float64) / 16777216.0, other, first, second, KIND)
            low = place + 32 * pairs
            tl.store(inside + low, x.to(tl.float32), mask=low < elements)
            tl.store(inside + low + 16, y.to(tl.float32), mask=low + 16 < elements)


def random_numbers(
    like: torch.Tensor, rng: torch.Tensor, distribution: str, first: float, second: float
) -> torch.Tensor:
    """Compute `dnnsuite.ops.random_numbers` by the kernel.

    Raises:
        RuntimeError: for another distribution, or an `rng` that is not int64 [B, 2].
    """
    if distribution not in _KINDS:
        raise RuntimeError(
            f"random_numbers: distribution must be {', '.join(_KINDS[:3])} or exponential, not {distribution}"
        )
    if rng.shape != (len(like), 2) or rng.dtype != torch.int64:
        raise RuntimeError(f"random_numbers: rng must have shape [{len(like)}, 2] and be int64, not {list(rng.shape)}")
    out = torch.empty(like.shape, dtype=like.dtype, device=like.device)
    wide, elements = like.dtype == torch.float64, like[0].numel() if len(like) else 0
    if not elements:
        return out
    calls = -(-elements // (32 if wide else 64)) * 16
    if distribution == "bernoulli" and not wide:  # compared as it would be with numbers of float32
        (first,) = struct.unpack("f", struct.pack("f", first))
    bits = struct.unpack("2q", struct.pack("2d", first, second))
    with torch.cuda.device(like.device) if like.is_cuda else nullcontext():
        for begin in range(0, len(like), _MOST_IN_GRID):
            own, streams = out[begin : begin + _MOST_IN_GRID], rng[begin : begin + _MOST_IN_GRID]
            _fill[-(-calls // _CALLS), len(own)](
                own, streams, streams.stride(0), streams.stride(1), elements, *bits,
                KIND=_KINDS.index(distribution), WIDE=wide, CALLS=_CALLS,
            )  # fmt: skip
    return out
