# SPDX-License-Identifier: MIT
"""What is special about tap_convolution; values and gradients are in test_operators.py."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dnnsuite import ops
from dnnsuite.errors import InvalidArgument
from dnnsuite.ops._tap_convolution import _pieces


@settings(max_examples=60, deadline=None)
@given(
    sides=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.tuples(st.integers(0, 4), st.integers(0, 4)),
)
def test_is_the_convolution(sides, kernel, stride, padding):
    if any(n + 2 * p < k for n, k, p in zip(sides, kernel, padding, strict=True)):
        return
    x, weight = torch.randn(1, 2, *sides, 3).double(), torch.randn(1, 4, *kernel, 3).double()
    x.requires_grad_(), weight.requires_grad_()
    y = ops.tap_convolution(x, weight, stride, padding)
    truth = torch.nn.functional.conv2d(x[0].movedim(-1, 1), weight[0].movedim(-1, 1), None, stride, padding)
    torch.testing.assert_close(y[0], truth.movedim(1, -1))
    grad = torch.randn_like(y)
    got = torch.autograd.grad(y, (x, weight), grad)
    wanted = torch.autograd.grad(truth.movedim(1, -1), (x, weight), grad[0])
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b)


def test_every_pair_of_pixels_meets_once():
    """3 x 3 filters on 2 x 2 pixels: 16 pairs, in runs of two."""
    pieces = _pieces((2, 2), (3, 3), (1, 1), (1, 1))
    assert len(pieces) == 8
    assert sum(piece.last - piece.first for piece in pieces) == 16


def test_a_weight_in_another_order_has_its_gradient():
    x = torch.randn(2, 3, 2, 2, 5)
    plain = torch.randn(2, 4, 5, 3, 3, requires_grad=True)
    last = plain.detach().movedim(2, -1).contiguous().requires_grad_()
    ops.tap_convolution(x, plain.movedim(2, -1), padding=(1, 1)).square().sum().backward()
    ops.tap_convolution(x, last, padding=(1, 1)).square().sum().backward()
    torch.testing.assert_close(plain.grad.movedim(2, -1), last.grad)


def test_a_shared_batch():
    x, weight = torch.randn(1, 3, 2, 2, 5).expand(2, 3, 2, 2, 5), torch.randn(2, 4, 3, 3, 5)
    y = ops.tap_convolution(x, weight, padding=(1, 1))
    assert torch.equal(y[1], ops.tap_convolution(x[:1], weight[1:], padding=(1, 1))[0])


def test_refuses():
    with pytest.raises(InvalidArgument, match=r"\[2, 3, 2, 2, 5\] and \[2, 4, 3, 3, 6\]"):
        ops.tap_convolution(torch.randn(2, 3, 2, 2, 5), torch.randn(2, 4, 3, 3, 6))
