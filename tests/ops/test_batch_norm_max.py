# SPDX-License-Identifier: MIT
"""What is special about batch_norm_max; values and gradients are in test_operators.py."""

import pytest
import torch

from dnnsuite import ops
from dnnsuite.errors import InvalidArgument
from dnnsuite.nn import functional


def points(*shape):
    return torch.randn(*shape).movedim(-1, 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_says_where_the_largest_is(dtype, device):
    x = points(2, 3, 50, 37).to(device, dtype)
    weight = torch.randn(2, 37, dtype=dtype).to(device)
    values, indices, statistics = ops.batch_norm_max(x, weight)
    y, expected = ops.batch_norm_act(x, weight)
    torch.testing.assert_close(statistics, expected)
    torch.testing.assert_close(values, y.gather(-1, indices))
    torch.testing.assert_close(values, y.amax(-1, keepdim=True))


def test_a_channel_without_weight_takes_the_first_largest_input():
    x = points(1, 1, 4, 2)
    values, indices, _ = ops.batch_norm_max(x, torch.tensor([[0.0, 1.0]]), torch.tensor([[3.0, 0.0]]))
    assert values[0, 0, 0, 0] == 3.0
    assert torch.equal(indices, x.argmax(-1, keepdim=True))


def test_nan_is_the_largest(device):
    x = points(1, 2, 9, 3).to(device)
    x[0, 1, 2, 5] = torch.nan
    given = {"mean": torch.zeros(1, 3, device=device), "variance": torch.ones(1, 3, device=device)}
    values, indices, _ = ops.batch_norm_max(x, **given)
    assert values[0, 1, 2, 0].isnan()
    assert indices[0, 1, 2, 0] == 5
    assert values.isnan().sum() == 1


def test_any_order_in_memory():
    x = torch.randn(2, 3, 5, 8)
    torch.testing.assert_close(ops.batch_norm_max(x)[0], ops.batch_norm_max(points(2, 3, 8, 5).copy_(x))[0])


def test_follows_the_batch_as_a_norm_does():
    x = points(2, 3, 20, 5)
    mine, theirs = ([torch.zeros(2, 5), torch.ones(2, 5)] for _ in range(2))
    functional.batch_norm_max(x, *mine, training=True, momentum=0.3, activation="relu")
    functional.batch_norm(x, *theirs, training=True, momentum=0.3)
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b)


def test_refuses():
    with pytest.raises(InvalidArgument, match=r"activation must be one of .*'relu'.*; got 'silu'"):
        functional.batch_norm_max(points(2, 3, 4, 5), None, None, training=True, activation="silu")
    with pytest.raises(RuntimeError, match=r"signed_max_over: x must be \[B, N, L, C\]"):
        torch.ops.dnnsuite.signed_max_over(torch.randn(2, 3, 4), torch.randn(2, 4))
    with pytest.raises(RuntimeError, match="signed_max_over: sign"):
        torch.ops.dnnsuite.signed_max_over(torch.randn(2, 3, 4, 5), torch.randn(2, 4))
