# SPDX-License-Identifier: MIT
"""Convolutions of every padding mode, stride, dilation and grouping, and transposed ones."""

from __future__ import annotations

import functools

import torch
from hypothesis import strategies as st

from . import Case, Example

CONV = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)
TRANSPOSED = (torch.nn.ConvTranspose1d, torch.nn.ConvTranspose2d, torch.nn.ConvTranspose3d)
SPACE = {1: 14, 2: 9, 3: 5}  # the largest image of each number of dimensions


def image(draw, dims, least, channels):
    """One model's images, sometimes a single one without a batch, sometimes with the channels last in memory."""
    batch = draw(st.sampled_from([(), (1,), (3,)]))
    shape = (*batch, channels, *(draw(st.integers(low, max(low, SPACE[dims]))) for low in least))
    last = draw(st.booleans())

    def make():
        x = torch.randn(shape)
        return (x.movedim(-dims - 1, -1).contiguous().movedim(-1, -dims - 1) if last else x,)

    return make


def each(draw, dims, low, high):
    return tuple(draw(st.integers(low, high)) for _ in range(dims))


@st.composite
def conv(draw, layer, dims):
    groups, multiple, per_group = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(1, 6))
    kernel, dilation = each(draw, dims, 1, 3), each(draw, dims, 1, 2)
    mode = draw(st.sampled_from(["zeros", "zeros", "reflect", "replicate", "circular"]))
    padding = draw(st.sampled_from(["same", "valid", each(draw, dims, 0, 1)]))
    if padding == "same":  # torch warns about even kernels
        kernel = tuple(2 * (k // 2) + 1 for k in kernel)
    stride = 1 if padding == "same" else each(draw, dims, 1, 2)
    least = [d * (k - 1) + 2 for k, d in zip(kernel, dilation, strict=True)]
    bias = draw(st.booleans())
    make = functools.partial(
        layer, groups * per_group, groups * multiple, kernel, stride, padding, dilation, groups, bias, mode
    )
    return Example(make, image(draw, dims, least, groups * per_group))


@st.composite
def depthwise(draw, kernel, sizes):
    """One filter a channel, as in MobileNet, down to maps of one pixel."""
    channels = draw(st.sampled_from([5, 16, 37]))
    stride, bias = draw(st.integers(1, 2)), draw(st.booleans())
    layer = functools.partial(torch.nn.Conv2d, groups=channels, bias=bias, padding=kernel // 2, stride=stride)
    make = functools.partial(layer, channels, channels, kernel)
    side = draw(st.sampled_from(sizes))
    return Example(make, image(draw, 2, [side, side], channels) if side > 9 else fixed(draw, channels, side))


@st.composite
def pointwise(draw):
    """A matrix product in disguise."""
    inputs, outputs = draw(st.sampled_from([3, 16, 40])), draw(st.sampled_from([5, 16, 24]))
    stride, bias = draw(st.integers(1, 2)), draw(st.booleans())
    make = functools.partial(torch.nn.Conv2d, inputs, outputs, 1, stride=stride, bias=bias)
    return Example(make, fixed(draw, inputs, draw(st.sampled_from([1, 2, 5]))))


@st.composite
def centre(draw):
    """A 3 x 3 filter on one pixel: all but its middle meets the padding."""
    inputs, outputs, bias = (draw(st.sampled_from([3, 16, 40])), draw(st.sampled_from([5, 16])), draw(st.booleans()))
    make = functools.partial(torch.nn.Conv2d, inputs, outputs, 3, padding=1, bias=bias)
    return Example(make, fixed(draw, inputs, 1))


def fixed(draw, channels, side):
    last = draw(st.booleans())

    def make():
        x = torch.randn(3, channels, side, side)
        return (x.to(memory_format=torch.channels_last) if last else x,)

    return make


@st.composite
def transposed(draw, layer, dims):
    groups, multiple, per_group = draw(st.integers(1, 2)), draw(st.integers(1, 4)), draw(st.integers(1, 4))
    stride, kernel, padding = each(draw, dims, 1, 3), each(draw, dims, 2, 3), each(draw, dims, 0, 1)
    dilation = each(draw, dims, 1, 2)
    extra = tuple(draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation, strict=True))
    bias = draw(st.booleans())
    make = functools.partial(
        layer, *(groups * per_group, groups * multiple, kernel, stride, padding, extra, groups, bias, dilation)
    )
    return Example(make, image(draw, dims, [2] * dims, groups * per_group))


CASES = [
    *(Case(layer.__name__, conv(layer, dims)) for dims, layer in enumerate(CONV, 1)),
    *(Case(layer.__name__, transposed(layer, dims)) for dims, layer in enumerate(TRANSPOSED, 1)),
    Case("Conv2d-depthwise-3", depthwise(3, (1, 2, 3, 8))),
    Case("Conv2d-depthwise-5", depthwise(5, (1, 2, 4, 9))),
    Case("Conv2d-pointwise", pointwise()),
    Case("Conv2d-centre", centre()),
]
