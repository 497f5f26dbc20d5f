# SPDX-License-Identifier: MIT
"""Layers that pad, rearrange and resample."""

from __future__ import annotations

import functools

import torch
from hypothesis import strategies as st

from . import Case, Example
from .convolution import image

nn = torch.nn


@st.composite
def padding(draw, layer, dims, *rest):
    sizes = [draw(st.integers(0, 2)) for _ in range(2 * dims)]
    make = functools.partial(layer, draw(st.sampled_from([1, tuple(sizes)])), *rest)
    return Example(make, image(draw, dims, [3] * dims, draw(st.integers(1, 5))))


@st.composite
def flatten(draw):
    shape = draw(st.lists(st.integers(1, 4), min_size=2, max_size=5))
    start = draw(st.integers(0, len(shape) - 1))
    end = draw(st.integers(start, len(shape) - 1))
    ends = draw(st.sampled_from([(start, end), (start, end - len(shape)), (start - len(shape), end)]))
    return Example(functools.partial(nn.Flatten, *ends), lambda: (torch.randn(shape),))


@st.composite
def unflatten(draw):
    dim, inner = draw(st.integers(-2, 2)), draw(st.sampled_from([(2, 3), (1, -1), (6, 1)]))
    return Example(functools.partial(nn.Unflatten, dim, inner), lambda: (torch.randn(6, 6, 6),))


@st.composite
def upsample(draw):
    mode, dims = draw(
        st.sampled_from(
            [
                *(("nearest", 1), ("nearest", 2), ("nearest-exact", 3), ("linear", 1)),
                *(("bilinear", 2), ("bicubic", 2), ("trilinear", 3)),
            ]
        )
    )
    align = draw(st.booleans()) if "linear" in mode or "cubic" in mode else None
    how = draw(st.sampled_from([{"size": 5}, {"scale_factor": 2}, {"scale_factor": 1.7}]))
    shape = (2, draw(st.sampled_from([1, 3, 8])), *(draw(st.integers(2, 4)) for _ in range(dims)))
    make = functools.partial(nn.Upsample, **how, mode=mode, align_corners=align)
    return Example(make, lambda: (torch.randn(shape),))


def fixed(make, *shape):
    """A single example: the layer has nothing to draw."""
    return st.just(Example(make, lambda: (torch.randn(shape),)))


PADS = [*(("Zero",), ("Constant", 1.5), ("Reflection",), ("Replication",), ("Circular",))]
CASES = [
    *(
        Case(f"{kind}Pad{dims}d", padding(getattr(nn, f"{kind}Pad{dims}d"), dims, *rest))
        for kind, *rest in PADS
        for dims in (1, 2, 3)
    ),
    Case("Flatten", flatten()),
    Case("Unflatten", unflatten()),
    Case("Upsample", upsample()),
    Case("UpsamplingNearest2d", fixed(lambda: nn.UpsamplingNearest2d(scale_factor=2), 2, 3, 4, 3)),
    Case("UpsamplingBilinear2d", fixed(lambda: nn.UpsamplingBilinear2d(size=(6, 5)), 2, 3, 4, 3)),
    Case("PixelShuffle", fixed(lambda: nn.PixelShuffle(2), 2, 8, 3, 4)),
    Case("PixelUnshuffle", fixed(lambda: nn.PixelUnshuffle(2), 2, 3, 4, 6)),
    Case("ChannelShuffle", fixed(lambda: nn.ChannelShuffle(3), 2, 6, 4, 3)),
    Case("Fold", fixed(lambda: nn.Fold((4, 5), 2, padding=1, stride=2), 2, 12, 9)),
    Case("Unfold", fixed(lambda: nn.Unfold((2, 3), dilation=1, padding=1, stride=2), 2, 3, 5, 6)),
]
