# SPDX-License-Identifier: MIT
"""What is special about softmax along short rows; gradients in general are in test_operators.py."""

import pytest
import torch

from dnnsuite.ops import short_softmax

LARGE = torch.finfo(torch.float32).max
INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("columns", [1, 2, 7, 15, 16, 32])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
def test_values_are_those_of_float64(log, columns, scale):
    x = scale * torch.randn(2, 1000, columns)
    truth = (torch.log_softmax if log else torch.softmax)(x.double(), -1)
    torch.testing.assert_close(short_softmax(x, log).double(), truth, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_numbers(log, dtype):
    rows = [
        *([0, 0, 0], [1e4, 0, -1e4], [-INF, 0, 1], [-INF, -INF, -INF], [INF, 0, 0], [INF, INF, 0]),
        *([NAN, 0, 0], [0, NAN, 0], [0, 0, NAN], [-LARGE, LARGE, 0], [-INF, NAN, 0]),
    ]
    x = torch.tensor([rows, rows], dtype=dtype)
    truth = (torch.log_softmax if log else torch.softmax)(x, -1)
    torch.testing.assert_close(short_softmax(x, log), truth, equal_nan=True)


def test_a_result_that_is_written_into_is_noticed():
    x = torch.randn(2, 3, 5, requires_grad=True)
    y = short_softmax(x)
    y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_long_rows_are_refused():
    with pytest.raises(RuntimeError, match="rows must have 1 to 32 numbers, not 33"):
        torch.ops.dnnsuite.short_softmax(torch.randn(2, 33), False)
