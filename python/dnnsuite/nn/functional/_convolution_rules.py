# SPDX-License-Identifier: MIT
"""Rules by which a convolution on a CPU is this package's, or torch's in one layout or the other, as measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ...ops.device import on_cpu
from ...ops.windows import output_pixels

Size = int | Sequence[int]
Pair = tuple[int, int]

FEW_PIXELS = 1024
"""Pixels of one model's batch up to which a filter of one tap is a product of ours: a torch convolution channels last
is 1.3 times as fast at 2048 and more, and 1.1 to 2.5 times slower below (`benchmarks/ops/bench_convolution.py`)."""

SMALL_FILTERS, SMALLER_FILTERS, MORE_PIXELS = 1024, 256, 8192
"""Filters of one tap, inputs times outputs, that are a product of ours up to so many pixels, and for any number of
them: 1.7 to 2.7 times the rate of torch's loop, of which a convolution, copied into place, has 0.75 to 0.97."""

FEW_OF_AN_IMAGE = 9
"""Pixels of an image up to which 3 x 3 filters of single channels are ours: 3 to 12 times torch's rate at 4 and fewer,
0.6 to 0.9 of it, channels last, from 16 on; larger filters are always ours (`benchmarks/ops/bench_depthwise.py`)."""


FEW_CHANNELS, FEW_PRODUCTS = 16, 40_000
"""Channels of depthwise filters that do not fill a vector, and pixels that come out, times taps, up to which they are
ours all the same: 1.2 to 3 times torch's rate, half of it at 100,000 (`benchmarks/ops/grid.py`)."""

FEW_OUTPUTS, FILTERS_PER_OUTPUT = 9, 7000
"""Pixels that come out, and filters of single channels for each, with which products of taps are 1.5 to 5 times as fast
as torch's convolution, channels last (`benchmarks/ops/bench_convolution.py`); 16 pixels take 1.5 times as long."""


VECTOR = 16
"""Filters of one channel and one tap from which the product of each pixel with all of them fills vectors: 1.5 times the
rate of torch's convolution where the pixels have no gradient."""

FEW_INPUTS, MANY_OUTPUTS, FEW_OF_A_GROUP = 3, 128, 8
"""Channels that go in, that come out, and that go into a group, of convolutions that are quicker contiguous."""


FEW_DILATED = 16
"""Pixels that come out of dilated filters up to which torch is 1.2 to 1.7 times as fast contiguous, copies included."""


def pair(size: Size) -> Pair:
    """Convert a stride, padding or dilation of images to two numbers."""
    if isinstance(size, int):
        return size, size
    values = tuple(size)
    return values * 2 if len(values) == 1 else values  # type: ignore[return-value]


def fits(
    input: Tensor,
    weight: Tensor,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
) -> bool:
    """Return True if the result is not empty; else torch's error message is used."""
    room = zip(input.shape[3:], weight.shape[3:], stride, padding, dilation, strict=True)
    return all(s > 0 and d > 0 and p >= 0 and d * (k - 1) < n + 2 * p for n, k, s, p, d in room)


FILLED = 16
"""Channels that go in from which oneDNN's convolutions of one tap fill a block on every CPU."""


def steps_go_wrong(input: Tensor, weight: Tensor, stride: Size, padding: str | Size, *rest: Any) -> bool:
    """Return True for filters of one tap and few channels with a stride, channels last on a CPU: torch's gradient of
    such filters is wrong, or the process crashes, in oneDNN before it is mended
    (https://github.com/uxlfoundation/oneDNN/issues/6035). The pixels have to be taken before."""
    if input.dim() != 5 or not on_cpu(input) or weight.shape[3:] != (1, 1) or weight.size(2) >= FILLED:
        return False
    padded = padding != "valid" if isinstance(padding, str) else pair(padding) != (0, 0)
    return not padded and pair(stride) != (1, 1) and min(pair(stride)) > 0


def is_own_depthwise(
    input: Tensor,
    weight: Tensor,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
) -> bool:
    """Return True if filters of single channels are quicker with this package's kernel."""
    if weight.shape[3:] == (3, 3) and input.shape[3:].numel() > FEW_OF_AN_IMAGE:
        return False
    if input.size(2) >= FEW_CHANNELS:
        return True
    outputs = output_pixels(input.shape[3:], weight.shape[3:], stride, padding, dilation)
    return input.size(1) * outputs * weight.shape[3:].numel() <= FEW_PRODUCTS


def is_small_product(x: Tensor, weight: Tensor) -> bool:
    """Return True if filters of one tap are quicker as a product of this package."""
    pixels = x.shape[1] * x.shape[3:].numel()
    if weight.size(2) == 1 and weight.size(1) >= VECTOR and not x.requires_grad:
        return True  # pixels times filters: what comes out is written once, and nothing is summed
    if pixels <= FEW_PIXELS:
        return True
    if min(weight.shape[1:3]) == 1:
        return False  # of one channel a product has one column of a vector
    filters = weight.size(1) * weight.size(2)
    return filters <= (SMALL_FILTERS if pixels <= MORE_PIXELS else SMALLER_FILTERS)


def padding_is_most(
    input: Tensor,
    weight: Tensor,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
) -> bool:
    """Return True if there are few output pixels, most taps are on the padding, and there are many filters."""
    outputs = output_pixels(input.shape[3:], weight.shape[3:], stride, padding)
    filters = weight.size(1) * weight.size(2)
    return (
        dilation == (1, 1)
        and padding != (0, 0)
        and outputs <= FEW_OUTPUTS
        and filters >= FILTERS_PER_OUTPUT * outputs
    )


def quicker_contiguous(input: Tensor, weight: Tensor, stride: Size, *rest: Any) -> bool:
    """Return True for convolutions that torch does faster contiguous than channels last, on a CPU.

    Without a gradient of the input they are those of one channel to one, which lie the same either way (1.3 times),
    those of few channels to many (1.2 to 1.4 times), filters of one tap in groups of few channels (1.3 to 2 times), and
    dilated ones of few pixels (up to twice). With one all are slower (`benchmarks/ops/grid.py`), but for the few pixels
    that come out of dilated filters.
    """
    if not on_cpu(input):
        return False
    if set(pair(rest[1])) != {1} and not isinstance(rest[0], str):
        steps = pair(stride), pair(rest[0]), pair(rest[1])
        pixels = input.size(1) * output_pixels(input.shape[3:], weight.shape[3:], *steps)
        return pixels <= (FEW_PIXELS if not input.requires_grad else FEW_DILATED)
    if input.requires_grad:
        return False
    outputs, inputs = weight.shape[1:3]
    if input.size(2) == inputs <= FEW_INPUTS:
        return outputs == inputs == 1 or (outputs >= MANY_OUTPUTS and weight.shape[3:] != (1, 1))
    if weight.shape[3:] != (1, 1) or pair(stride) != (1, 1):
        return False
    return inputs <= FEW_OF_A_GROUP and 1 < rest[-1] < input.size(2)
