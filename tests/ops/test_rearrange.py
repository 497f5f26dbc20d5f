# SPDX-License-Identifier: MIT
"""What is special about copies in another order; gradients and layouts in general are in test_operators.py."""

import itertools

import pytest
import torch

from dnnsuite.ops import copied_in_order, rearranged

copied = torch.ops.dnnsuite.rearranged


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(3, 17, 2, 20), (2, 4, 8, 16), (3, 5, 2, 6), (1, 33, 16, 1), (2, 3, 70, 50)])
def test_every_order(shape, dtype):
    x = torch.randn(shape, dtype=dtype)
    for order in itertools.permutations(range(len(shape))):
        y = copied(x, order)
        assert y.is_contiguous()
        assert torch.equal(y, x.permute(order)), order


def test_the_gradient_lies_like_the_input():
    x = torch.randn(2, 3, 5, 4, 6).movedim(-1, 2).requires_grad_()
    y = rearranged(x, (60, 2, 3), (0, 1, 3, 2), (3, 5, 4, 6))
    assert y.movedim(2, -1).is_contiguous()
    (grad,) = torch.autograd.grad(y, x, torch.randn(y.shape))
    assert grad.stride() == x.stride()


def test_other_dtypes_are_copied_by_torch():
    x = torch.arange(24).view(1, 2, 12, 1, 1)
    assert rearranged(x, (2, 3, 4), (0, 1, 3, 2), (2, 1, 1, 12))[0, 0, :3, 0, 0].tolist() == [0, 4, 8]


def test_orders_that_leave_out_a_dimension_are_refused():
    with pytest.raises(RuntimeError, match=r"order must name each dimension of \[2, 3\] once"):
        copied(torch.randn(2, 3), [0, 0])


def test_a_copy_of_a_view():
    """Its gradient lies as the view does; views with gaps, and other dtypes, are torch's."""
    x = torch.randn(2, 3, 5, 4, 6).permute(0, 1, 4, 2, 3).requires_grad_()
    y = copied_in_order(x, [0, 4, 2, 1, 3])
    assert y.is_contiguous()
    assert torch.equal(y, x.permute(0, 4, 2, 1, 3))
    (grad,) = torch.autograd.grad(y, x, torch.randn(y.shape))
    assert grad.stride() == x.stride()
    assert copied_in_order(x[:, :2], [0, 4, 2, 1, 3]) is None
    assert copied_in_order(torch.ones(2, 3, dtype=torch.int64), [1, 0]) is None
