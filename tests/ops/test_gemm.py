# SPDX-License-Identifier: MIT
"""The products behind linear and matmul: what the operators themselves take and refuse."""

import pytest
import torch

from dnnsuite import ops

library = torch.ops.dnnsuite
assert ops


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rows", [1, 2, 3, 5, 9, 11, 12, 13, 25])
def test_every_tile(rows, dtype):
    for columns in (1, 15, 16, 17, 31, 32, 33, 64, 65, 130):
        a, b = torch.randn(2, rows, 19, dtype=dtype), torch.randn(2, 19, columns, dtype=dtype)
        torch.testing.assert_close(library.matmul(a, b), torch.bmm(a, b), rtol=1e-4, atol=1e-5)
        turned = b.mT.contiguous().mT
        assert torch.equal(library.matmul(a, turned), library.matmul(a, b)), "packed or not, the same sums"


def test_pieces_of_the_depth_are_one_sum():
    """600 terms in order, whether C was put down in between or not: three products that begin with the last sum."""
    a, b = torch.randn(1, 9, 600), torch.randn(1, 600, 20)
    whole = library.matmul(a, b)
    torch.testing.assert_close(whole, torch.bmm(a, b), rtol=1e-4, atol=1e-4)
    total = torch.zeros(1, 1, 20)
    for first in (0, 256, 512):  # the bias is what a sum begins with
        part = slice(first, first + 256)
        total = library.linear(a[:, :1, part], b[:, part].mT, total[:, 0], False)
    assert torch.equal(total[0, 0], whole[0, 0])


def test_a_row_does_not_feel_the_others():
    a, b = torch.randn(1, 37, 50), torch.randn(1, 50, 40)
    whole = library.matmul(a, b)
    for row in (0, 11, 36):
        assert torch.equal(library.matmul(a[:, row : row + 1], b)[0, 0], whole[0, row])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: library.matmul(torch.ones(2, 3), torch.ones(2, 3, 4)), "a must have three dimensions"),
        (lambda: library.matmul(torch.ones(2, 3, 4), torch.ones(2, 5, 6)), "b must have shape"),
        (lambda: library.linear(torch.ones(2, 3, 4), torch.ones(2, 5, 4).double(), None, False), "weight must be"),
        (lambda: library.linear(torch.ones(2, 3, 4), torch.ones(2, 5, 4), torch.ones(5), False), "bias must have"),
        (
            lambda: library.linear_backward(
                torch.ones(2, 3, 5), torch.ones(2, 3, 4), torch.ones(2, 5, 4), torch.ones(2, 3, 6), True, True, True
            ),
            "relu_output must have shape",
        ),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(RuntimeError, match=message):
        call()
