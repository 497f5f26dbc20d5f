# SPDX-License-Identifier: MIT
"""What is special about max_over: ties, NaN, and any order in memory; the rest is in test_operators.py."""

import itertools

import pytest
import torch

from dnnsuite import ops


@pytest.mark.parametrize("shape", [(2, 3, 40), (2, 37, 5), (2, 100, 33), (2, 1, 4), (2, 33, 4, 17)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_first_of_equals_and_nan(shape, dtype, device):
    """Few different numbers, so that there are ties everywhere, and some NaNs of either sign."""
    x = torch.randint(-2, 3, shape).to(dtype)
    x[torch.rand(shape) < 0.02] = torch.nan
    x[torch.rand(shape) < 0.02] = -torch.nan
    x = x.to(device)
    for dim in range(1, len(shape)):
        values, indices = ops.max_over(x, dim)
        # Not torch's own index: it takes any of equal NaNs or numbers; the first is what it documents for none.
        nan = x.isnan()
        largest = torch.where(nan, torch.inf, x).amax(dim, keepdim=True)
        first = ((torch.where(nan, torch.inf, x)) == largest).to(torch.int8).argmax(dim, keepdim=True)
        assert torch.equal(indices, first)
        torch.testing.assert_close(values, x.gather(dim, first), equal_nan=True, rtol=0, atol=0)


def test_every_order_in_memory(device):
    x = torch.randn(2, 3, 20, 17).to(device)
    for order in itertools.permutations((1, 2, 3)):
        turned = x.permute(0, *order).contiguous()
        back = [0, *(order.index(d) + 1 for d in (1, 2, 3))]
        for dim in (1, 2, 3):
            got, want = ops.max_over(turned.permute(back), dim), torch.max(x, dim, keepdim=True)
            assert torch.equal(got[0], want[0])
            assert torch.equal(got[1], want[1])
    shared = x[:1].expand(3, 3, 20, 17)
    assert torch.equal(ops.max_over(shared, 2)[0][2], ops.max_over(x, 2)[0][0])


def test_refuses():
    with pytest.raises(RuntimeError, match="dim must be 1 to 2"):
        torch.ops.dnnsuite.max_over(torch.randn(2, 3, 4), 0)
