# SPDX-License-Identifier: MIT
"""Which operator a convolution on a CPU runs: the quickest by its shape, as `benchmarks/ops/grid.py` measures."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dnnsuite import ops
from dnnsuite.nn import functional


class Operators(TorchDispatchMode):
    """Context manager: collect the names of this package's operators that run."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        if operator.namespace == "dnnsuite":
            self.names.add(operator._schema.name.removeprefix("dnnsuite::"))
        return operator(*args, **kwargs or {})


def last(*shape):
    return torch.randn(*shape[:2], *shape[3:], shape[2]).movedim(-1, 2)


def check(x, weight, operator, *rest):
    """Values are torch's, and the operator is this one."""
    with Operators() as ran:
        y = functional.conv2d(x, weight, None, *rest)
    truth = [torch.nn.functional.conv2d(a.double(), w.double(), None, *rest) for a, w in zip(x, weight, strict=True)]
    torch.testing.assert_close(y, torch.stack(truth).float(), rtol=1e-4, atol=1e-3)
    assert operator in ran.names


vectors = pytest.mark.skipif(ops.instruction_set() == "generic", reason="a processor without AVX2 has other rules")


@vectors
def test_few_channels_of_large_images():
    """The first layer of a ResNet, 300 million multiplications a model."""
    check(last(2, 8, 3, 64, 64), last(2, 64, 3, 7, 7), "window_convolution", 2, 3)


@vectors
@pytest.mark.parametrize(
    ("samples", "side", "kernel", "operator"),
    [(64, 4, 7, "window_convolution"), (4, 4, 15, "convolve_models"), (64, 8, 5, "convolve_models")],
)
def test_groups_of_maps_that_are_smaller_than_filters(samples, side, kernel, operator):
    """Position by position, if there are samples enough and most taps are on the padding."""
    x, weight = last(2, samples, 64, side, side), last(2, 64, 4, kernel, kernel)
    check(x, weight, operator, 1, kernel // 2, 1, 16)


@vectors
@pytest.mark.parametrize(
    ("inputs", "outputs", "kernel", "operator"),
    [
        (1, 64, 3, "window_convolution"),
        (3, 64, 5, "window_convolution"),
        (3, 64, 3, "convolve_models"),
        (1, 16, 5, "convolve_models"),
    ],
)
def test_dilated_filters_of_few_channels(inputs, outputs, kernel, operator):
    """Lines as images of one row, whose taps lie apart."""
    x, weight = last(2, 16, inputs, 1, 4500), last(2, outputs, inputs, 1, kernel)
    check(x, weight, operator, 1, (0, 4), (1, 4))


def test_many_pixels_that_are_scaled_where_they_lie():
    check(last(2, 4, 64, 64, 64), last(2, 64, 1, 1, 1), "depthwise", 1, 0, 1, 64)


@pytest.mark.parametrize(("outputs", "operator"), [(8, "window_convolution"), (256, "linear")])
def test_filters_of_which_one_tap_meets_the_map(outputs, operator):
    """A view of the tap is worth its time where filters are large."""
    check(last(2, 3, 16, 1, 1), last(2, outputs, 16, 3, 3), operator, 1, 1)


class Reads(TorchDispatchMode):
    """Context manager: collect the memory of the first tensor that each of this package's operators is given."""

    def __init__(self):
        super().__init__()
        self.places = set()

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        if operator.namespace == "dnnsuite":
            self.places.add(args[0].data_ptr())
        return operator(*args, **kwargs or {})


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("shared", [False, True])
def test_one_sample_in_groups_is_convolved_where_it_lies(shared, stride):
    """Groups as models of their own would copy images whose channels lie last, and a batch that all models share."""
    x = torch.randn(1, 1, 64, 16, 16).expand(2, -1, -1, -1, -1) if shared else last(2, 1, 64, 16, 16)
    x, weight = functional.convolution.channels_last(x), last(2, 64, 16, 1, 1)
    with Reads() as reads:
        y = functional.conv2d(x, weight, None, stride, 0, 1, 4)
    truth = [torch.nn.functional.conv2d(a, w, None, stride, 0, 1, 4) for a, w in zip(x, weight, strict=True)]
    torch.testing.assert_close(y, torch.stack(truth))
    assert x.data_ptr() in reads.places
