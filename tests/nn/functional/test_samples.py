# SPDX-License-Identifier: MIT
import pytest
import torch

from dnnsuite import stack
from dnnsuite.errors import InvalidArgument
from dnnsuite.nn.functional._samples import each_sample, over_samples


def test_the_models_are_one_batch():
    seen = []

    def double(x):
        seen.append(tuple(x.shape))
        return 2 * x, x

    x = torch.randn(2, 3, 4, 5)
    twice, same = each_sample(double, "double", 1, x)
    assert torch.equal(twice, 2 * x)
    assert torch.equal(same, x)
    each_sample(double, "double", 2, x)
    assert seen == [(6, 4, 5), (2, 3, 4, 5)]
    with pytest.raises(InvalidArgument, match=r"double takes \[B, N, C, D, H, W\]"):
        each_sample(double, "double", 3, x)


def test_a_shared_batch_is_computed_once():
    seen = []

    def double(x):
        seen.append(tuple(x.shape))
        return 2 * x

    y = each_sample(double, "double", 1, stack(torch.randn(3, 4, 5), 8))
    assert seen == [(3, 4, 5)]
    assert y.shape == (8, 3, 4, 5)
    assert y.stride(0) == 0


def test_takes_the_arguments_of_the_function():
    half = over_samples(lambda x, by=2: x / by, "half", 1)
    x = torch.randn(2, 3, 4, 5)
    assert torch.equal(half(x, by=4), x / 4)
    assert half(input=x).shape == x.shape


def test_samples_in_turn_are_not_copied():
    whole = torch.randn(4, 3, 2, 6, 6)  # [N, B, C, H, W]
    x, seen = whole.transpose(0, 1), []

    def pool(t):
        seen.append(t.data_ptr())
        return torch.nn.functional.max_pool2d(t, 2, return_indices=True)

    found = each_sample(pool, "pool", 2, x)
    assert seen == [whole.data_ptr()]
    for one, other in zip(found, each_sample(pool, "pool", 2, x.contiguous()), strict=True):
        assert torch.equal(one, other)
