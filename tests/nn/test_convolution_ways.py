# SPDX-License-Identifier: MIT
"""Every way to convolve on a GPU, on a CPU: results and gradients of the models one by one."""

import pytest
import torch
from torch.nn import functional as F

from dnnsuite.nn._convolution_ways import convolution_ways

CASES = {
    "3x3": (F.conv2d, (6, 4, 3, 3), (2, 3, 4, 7, 6), (2, 1, 1, 1)),
    "1x1": (F.conv2d, (5, 4, 1, 1), (2, 3, 4, 5, 6), ((2, 1), (0,), 1, 1)),
    "depthwise": (F.conv2d, (4, 1, 3, 2), (2, 3, 4, 5, 6), (1, (1, 0), 1, 4)),
    "groups": (F.conv2d, (6, 2, 3, 3), (2, 3, 4, 5, 6), (1, "same", 1, 2)),
    "transposed": (F.conv_transpose2d, (4, 3, 3, 3), (2, 3, 4, 5, 6), (2, 1, 1, 1, 1)),
    "line": (F.conv1d, (5, 4, 3), (2, 3, 4, 9), (1, 1, 2, 1)),
}


def tensors(case, shared, device="cpu"):
    torch.manual_seed(0)
    plain, filters, shape, rest = CASES[case]
    x = torch.randn(shape[1:], dtype=torch.float64).expand(shape) if shared else torch.randn(shape).double()
    outputs = filters[1] if plain is F.conv_transpose2d else filters[0]
    weight, bias = torch.randn(shape[0], *filters).double(), torch.randn(shape[0], outputs).double()
    # Moved to its device first: what is shared stays one tensor.
    x = x[0].to(device).expand(shape) if shared else x.to(device).requires_grad_()
    return plain, (x, *(t.to(device).requires_grad_() for t in (weight, bias))), rest


@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
@pytest.mark.parametrize("case", CASES)
def test_every_way_is_the_models_one_by_one(case, shared, device):
    plain, inputs, rest = tensors(case, shared, device)
    leaves = [t for t in inputs if t.requires_grad]
    expected = torch.stack([plain(*own, *rest) for own in zip(*inputs, strict=True)])
    weights = torch.randn_like(expected)
    wanted = torch.autograd.grad(expected, leaves, weights)
    ways = convolution_ways(plain, *inputs, *rest)
    assert {"groups", "streams"} <= set(ways)
    for way in ways.values():
        y = way(*inputs)
        torch.testing.assert_close(y, expected)
        for one, other in zip(torch.autograd.grad(y, leaves, weights), wanted, strict=True):
            torch.testing.assert_close(one, other)


def test_each_shape_has_the_ways_that_it_can():
    def names(case, shared=False):
        plain, inputs, rest = tensors(case, shared)
        return set(convolution_ways(plain, *inputs, *rest))

    several = {"groups", "groups, channels last", "streams", "streams, channels last"}
    assert names("3x3") == several
    assert names("3x3", shared=True) == several | {"wide"}
    assert names("1x1") == several | {"product"}
    assert names("depthwise") == several | {"depthwise"}
    assert names("line") == {"groups", "streams"}
    plain, (x, *others), rest = tensors("3x3", shared=False)
    in_turn = x.permute(1, 3, 4, 0, 2).contiguous().permute(3, 0, 4, 1, 2)
    assert set(convolution_ways(plain, in_turn, *others, *rest)) == several - {"groups, channels last"}
    last = x.movedim(2, -1).contiguous().movedim(-1, 2)
    assert set(convolution_ways(plain, last, *others, *rest)) == several - {"streams, channels last"}


def test_results_side_by_side_stay_so_for_the_next():
    plain, inputs, rest = tensors("3x3", shared=True)
    y = convolution_ways(plain, *inputs, *rest)["wide"](*inputs)
    assert y.transpose(0, 1).is_contiguous()
