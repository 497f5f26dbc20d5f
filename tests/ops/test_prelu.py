# SPDX-License-Identifier: MIT
"""What is special about rectifiers with slopes; gradients and layouts in general are in test_operators.py."""

import pytest
import torch

from dnnsuite.ops import prelu


@pytest.mark.parametrize("last", [False, True])
def test_values_and_memory_order_are_those_of_torch(last):
    x = torch.randn(2, 3, 5, 4, 6)
    x = x.movedim(2, -1).contiguous().movedim(-1, 2) if last else x
    x[0, 0, :, 0, 0] = torch.tensor([0.0, -0.0, float("nan"), float("inf"), -float("inf")])
    slopes = torch.randn(2, 5)
    y = prelu(x, slopes)
    truth = torch.stack([torch.prelu(one, own) for one, own in zip(x, slopes, strict=True)])
    assert torch.equal(y.nan_to_num(), truth.nan_to_num())
    assert torch.equal(y.isnan(), truth.isnan())
    assert y.stride() == x.stride()


def test_numbers_with_gaps_are_left_to_torch():
    assert prelu(torch.randn(2, 3, 5, 8)[..., ::2], torch.randn(2, 5)) is None
    assert prelu(torch.randn(2, 3), torch.randn(2, 1)) is None


def test_slopes_that_do_not_fit_are_refused():
    with pytest.raises(RuntimeError, match=r"slopes must be \[2, channels\], not \[3, 5\]"):
        torch.ops.dnnsuite.prelu(torch.randn(2, 3, 5), torch.randn(3, 5), 1)
    with pytest.raises(RuntimeError, match=r"\[2, 3, 5\] does not consist of 4 channels of 2 numbers"):
        torch.ops.dnnsuite.prelu(torch.randn(2, 3, 5), torch.randn(2, 4), 2)
