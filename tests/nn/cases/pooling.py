# SPDX-License-Identifier: MIT
"""Pooling of every kind, in both orders of memory, with and without a batch."""

from __future__ import annotations

import functools

import torch
from hypothesis import strategies as st

from . import Case, Example
from .convolution import each, image

nn = torch.nn


@st.composite
def window(draw, layer, dims, **options):
    kernel = each(draw, dims, 2, 3)
    options = {name: draw(values) for name, values in options.items()}
    stride, padding = draw(st.sampled_from([None, 1, 2])), each(draw, dims, 0, 1)
    make = functools.partial(layer, kernel, stride, padding, **options)
    return Example(make, image(draw, dims, [5] * dims, draw(st.sampled_from([1, 3, 17]))))


@st.composite
def adaptive(draw, layer, dims, **options):
    sizes = draw(st.sampled_from([1, each(draw, dims, 1, 4)]))
    make = functools.partial(layer, sizes, **options)
    return Example(make, image(draw, dims, [1] * dims, draw(st.sampled_from([1, 3, 17]))))


@st.composite
def power(draw, layer, dims):
    kernel = draw(st.integers(2, 3)) if dims == 1 else each(draw, dims, 2, 3)
    make = functools.partial(layer, 2, kernel, ceil_mode=draw(st.booleans()))
    inputs = image(draw, dims, [4] * dims, 3)
    return Example(make, lambda: (inputs()[0].abs() + 0.1,))


@st.composite
def unpool(draw, layer, dims):
    pool = functools.partial(getattr(torch.nn.functional, f"max_pool{dims}d"), kernel_size=2)
    plain = image(draw, dims, [4] * dims, 3)

    def inputs():
        x = plain()[0]  # of even sizes: those that the layer takes the result to have
        for dim in range(-dims, 0):
            x = x.narrow(dim, 0, x.size(dim) // 2 * 2)
        return pool(x, return_indices=True)

    return Example(functools.partial(layer, 2), inputs)


DILATIONS, FLAGS, DIVISORS = st.integers(1, 2), st.booleans(), st.sampled_from([None, 3])
MAX = {"dilation": DILATIONS, "ceil_mode": FLAGS}
AVG = {"ceil_mode": FLAGS, "count_include_pad": FLAGS}
DIMS = (1, 2, 3)


def layer(name, dims):
    return getattr(nn, f"{name}{dims}d")


CASES = [
    *(Case(f"MaxPool{d}d", window(layer("MaxPool", d), d, return_indices=FLAGS, **MAX)) for d in DIMS),
    *(
        Case(
            f"AvgPool{d}d",
            window(layer("AvgPool", d), d, **AVG, **({"divisor_override": DIVISORS} if d > 1 else {})),
            bf16=d < 3,
        )
        for d in DIMS
    ),
    *(Case(f"AdaptiveAvgPool{d}d", adaptive(layer("AdaptiveAvgPool", d), d)) for d in DIMS),
    *(Case(f"AdaptiveMaxPool{d}d", adaptive(layer("AdaptiveMaxPool", d), d, return_indices=True)) for d in DIMS),
    *(Case(f"LPPool{d}d", power(layer("LPPool", d), d), bf16=d < 3) for d in DIMS),
    *(Case(f"MaxUnpool{d}d", unpool(layer("MaxUnpool", d), d)) for d in DIMS),
]
