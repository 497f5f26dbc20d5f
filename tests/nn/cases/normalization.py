# SPDX-License-Identifier: MIT
"""Batch, instance, group, RMS and local response normalisation, in training and in evaluation."""

from __future__ import annotations

import functools

import torch
from hypothesis import strategies as st

from . import Case, Example

SPACE = st.integers(1, 5)


def shape_of(draw, dims, least=2):
    """[N, C, *] with at least two values a channel."""
    return (draw(st.integers(least, 5)), draw(st.integers(1, 20)), *(draw(SPACE) for _ in range(dims)))


@st.composite
def batch_norm(draw, layer, dims, training):
    shape = shape_of(draw, dims, 4)
    options = {
        "eps": draw(st.sampled_from([1e-5, 1e-2])),
        "momentum": draw(st.sampled_from([0.1, 0.5, None])),
        "affine": draw(st.booleans()),
        "track_running_stats": draw(st.booleans()),
    }
    last = draw(st.booleans())

    def make():
        return functools.partial(layer, **options)(shape[1]).train(training)

    def inputs():
        x = torch.randn(shape)
        return (x.movedim(1, -1).contiguous().movedim(-1, 1) if last else x,)

    return Example(make, inputs)


@st.composite
def instance_norm(draw, layer, dims):
    shape = (*shape_of(draw, dims - 1, 1), draw(st.integers(2, 5)))
    options = {"affine": draw(st.booleans()), "track_running_stats": draw(st.booleans())}
    training = draw(st.booleans())
    return Example(lambda: layer(shape[1], **options).train(training), lambda: (torch.randn(shape),))


@st.composite
def group_norm(draw):
    groups, each, affine = draw(st.integers(1, 3)), draw(st.integers(2, 4)), draw(st.booleans())
    leading = (draw(st.integers(1, 4)), groups * each)
    shape = (*leading, *draw(st.lists(st.integers(2, 4), max_size=2)))
    return Example(lambda: torch.nn.GroupNorm(groups, groups * each, affine=affine), lambda: (torch.randn(shape),))


@st.composite
def rms_norm(draw):
    shape = draw(st.lists(st.integers(2, 7), min_size=1, max_size=2).map(tuple))
    leading = draw(st.lists(st.integers(1, 5), min_size=1, max_size=2).map(tuple))
    eps, affine = draw(st.sampled_from([None, 1e-3])), draw(st.booleans())
    make = functools.partial(torch.nn.RMSNorm, shape, eps, elementwise_affine=affine)
    return Example(make, lambda: (torch.randn(*leading, *shape),))


@st.composite
def local_response_norm(draw):
    shape, size = shape_of(draw, 2, 1), draw(st.integers(1, 4))
    make = functools.partial(torch.nn.LocalResponseNorm, size, alpha=0.1, beta=0.5)
    return Example(make, lambda: (torch.randn(shape),))


BATCH = ((torch.nn.BatchNorm1d, 0), (torch.nn.BatchNorm1d, 1), (torch.nn.BatchNorm2d, 2), (torch.nn.BatchNorm3d, 3))
INSTANCE = ((torch.nn.InstanceNorm1d, 1), (torch.nn.InstanceNorm2d, 2), (torch.nn.InstanceNorm3d, 3))

CASES = [
    *(
        Case(f"{layer.__name__}-{dims}-{'train' if on else 'eval'}", batch_norm(layer, dims, on))
        for layer, dims in BATCH
        for on in (True, False)
    ),
    *(Case(layer.__name__, instance_norm(layer, dims)) for layer, dims in INSTANCE),
    Case("GroupNorm", group_norm()),
    Case("RMSNorm", rms_norm()),
    Case("LocalResponseNorm", local_response_norm(), bf16=False),
]
