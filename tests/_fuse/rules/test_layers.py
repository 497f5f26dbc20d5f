# SPDX-License-Identifier: MIT
"""Functions of torch.nn.functional in a user's code become ours."""

import pytest
import torch
from torch.nn import functional as F

import dnnsuite
from dnnsuite._fuse.rules.functional import layer_rule
from function_cases import check
from helpers import check_matches_models, make_models

KERNEL = torch.randn(2, 3, 3, 3)


def test_functions_of_ours_are_used():
    check(lambda x, w: F.conv2d(x, w, padding=1), torch.randn(2, 4, 3, 6, 6), torch.randn(2, 5, 3, 3, 3))
    check(lambda x: F.conv2d(x, KERNEL), torch.randn(2, 4, 3, 6, 6))
    check(lambda x: F.layer_norm(x, (4,)), torch.randn(2, 5, 4))
    check(lambda x, t: F.cross_entropy(x, t), torch.randn(2, 5, 4), torch.randint(4, (2, 5)))


def test_what_has_the_name_but_is_another_function():
    assert layer_rule(torch.embedding) is None  # another order of arguments than torch.nn.functional.embedding
    assert layer_rule(torch.add) is None


class Calls(torch.nn.Module):
    """A layer, and a function behind it."""

    def __init__(self, function):
        super().__init__()
        self.first, self.function = torch.nn.Conv2d(2, 4, 3, padding=1), function

    def forward(self, x):
        return self.function(torch.relu(self.first(x)))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.max_pool2d(x, 2, ceil_mode=True),
        lambda x: torch.max_pool2d(x, (3, 2), (2, 1), (1, 0)),
        lambda x: torch.max_pool1d(x.flatten(2), kernel_size=3, stride=2),
        lambda x: torch.max_pool3d(x, 2),
        lambda x: torch.layer_norm(x, (9,), eps=1e-3, cudnn_enable=False),
        lambda x: torch.layer_norm(x, (9,), None, None, 1e-3, False),
        lambda x: torch.group_norm(x, 2, cudnn_enabled=False),
        lambda x: torch.dropout(x, 0.5, train=False),
    ],
)
def test_functions_of_torch_that_have_a_twin_are_used_as_their_twins(function):
    models = [Calls(function).double() for _ in range(3)]
    array = dnnsuite.fuse(models)
    x = torch.randn(3, 5, 2, 9, 9, dtype=torch.float64)
    torch.testing.assert_close(array(x), torch.stack([m(own) for m, own in zip(models, x, strict=True)]))
    assert {cover.how for cover in array.coverage()} == {"fused"}


def test_torchs_dropout_draws_from_each_models_stream():
    models = [Calls(lambda x: torch.dropout(x, 0.5, True)) for _ in range(2)]
    x = torch.randn(2, 5, 2, 9, 9)
    both = dnnsuite.fuse(models, seeds=[3, 4])(x)
    alone = dnnsuite.fuse(models[1:], seeds=[4])(x[1:])
    assert torch.equal(both[1], alone[0])
    assert not torch.equal(both[0] == 0, both[1] == 0)


class PoolsAndUndoes(torch.nn.Module):
    """Takes the places of maxima after a ReLU, which waits for the pool."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 20, 3, padding=1)
        self.back = torch.nn.Conv2d(20, 1, 1)

    def forward(self, x):
        y, places = F.max_pool2d(torch.relu(self.conv(x)), 2, return_indices=True)
        return self.back(F.max_unpool2d(y, places, 2))


def test_pools_with_indices_are_those_of_the_models():
    check_matches_models(make_models(PoolsAndUndoes, 3), torch.randn(3, 4, 3, 24, 24))


def test_pools_with_indices_are_captured():
    array = dnnsuite.fuse(make_models(PoolsAndUndoes, 3))
    optimizer = dnnsuite.optim.SGD(array.parameters(), lr=0.1)
    with dnnsuite.StepRunner(array, optimizer, lambda a, x: a(x).square().mean((1, 2, 3, 4)), threads=1) as runner:
        for _ in range(40):  # as many as the choice of a width takes
            runner.step(torch.randn(3, 4, 3, 24, 24))
            runner.synchronize()
            if runner.mode == "captured":
                break
        assert runner.mode == "captured"
