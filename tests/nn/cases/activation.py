# SPDX-License-Identifier: MIT
"""Activations with a dimension or a weight; the elementwise ones are torch's own."""

from __future__ import annotations

import functools

import torch
from hypothesis import strategies as st

from . import Case, Example


@st.composite
def along(draw, layer, sizes=(1, 2, 3, 5, 17)):
    shape = draw(st.lists(st.sampled_from(sizes), min_size=1, max_size=4))
    dim = draw(st.integers(-len(shape), len(shape) - 1))
    return Example(functools.partial(layer, dim), lambda: (torch.randn(shape),))


@st.composite
def softmax2d(draw):
    shape = draw(st.lists(st.integers(1, 5), min_size=3, max_size=4))
    return Example(torch.nn.Softmax2d, lambda: (torch.randn(shape),))


@st.composite
def prelu(draw):
    shape = (draw(st.integers(1, 4)), draw(st.integers(1, 5)), *draw(st.lists(st.integers(1, 4), max_size=2)))
    count = draw(st.sampled_from([1, shape[1]]))
    return Example(functools.partial(torch.nn.PReLU, count), lambda: (torch.randn(shape),))


@st.composite
def rrelu(draw):
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    return Example(lambda: torch.nn.RReLU(0.1, 0.5).eval(), lambda: (torch.randn(shape),))


CASES = [
    *(Case(layer.__name__, along(layer)) for layer in (torch.nn.Softmax, torch.nn.Softmin, torch.nn.LogSoftmax)),
    Case("GLU", along(torch.nn.GLU, sizes=(2, 4, 6))),
    Case("Softmax2d", softmax2d()),
    Case("PReLU", prelu()),
    Case("RReLU", rrelu()),
]
