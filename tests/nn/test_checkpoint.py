# SPDX-License-Identifier: MIT
import pytest
import torch

import dnnsuite
from dnnsuite import nn
from dnnsuite.errors import InvalidArgument
from helpers import assert_near, make_models


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.Tanh())

    def forward(self, x):
        return torch.nn.functional.dropout(self.inner(x), 0.25, self.training) + x


class Stack(torch.nn.Module):
    checkpoint = None

    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block(), Block()])

    def forward(self, x):
        for block in self.blocks:
            x = block(x) if self.checkpoint is None else self.checkpoint(block, x)
        return x


def gradients(array, x):
    dnnsuite.nn.seed(array, [1, 2, 3])
    array.zero_grad()
    output = array(x)
    output.square().sum().backward()
    return output, [p.grad.clone() for p in array.parameters()]


def test_the_second_forward_draws_the_same():
    array = dnnsuite.fuse(make_models(Stack, 3))
    x = torch.randn(3, 4, 8)
    output, expected = gradients(array, x)
    array.checkpoint = lambda block, x: nn.checkpoint(block, x)
    again, found = gradients(array, x)
    assert torch.equal(output, again)
    for a, b in zip(found, expected, strict=True):
        assert_near(a, b)


def test_on_layers_of_an_array():
    layers = torch.nn.Sequential(nn.Linear(8, 8, B=3), nn.Dropout(0.5, B=3))
    x = torch.randn(3, 4, 8, requires_grad=True)
    keys = layers[1].rng.clone()
    layers(x).square().sum().backward()
    expected = x.grad
    x.grad = None
    layers[1].rng.copy_(keys)
    nn.checkpoint(layers, x).square().sum().backward()
    assert_near(x.grad, expected)
    assert layers[1].rng[:, 1].tolist() == [1, 1, 1]


def test_torchs_own_checkpoint_around_an_array_would_draw_anew_and_is_refused():
    array = dnnsuite.fuse(make_models(Stack, 3))
    output = torch.utils.checkpoint.checkpoint(array, torch.randn(3, 4, 8), use_reentrant=False)
    with pytest.raises(InvalidArgument, match=r"dnnsuite\.nn\.checkpoint"):
        output.sum().backward()


def test_statistics_follow_a_batch_norm_that_is_the_last_layer():
    """Both times, as in torch, though the second run ends with the last tensor that is kept."""
    layers, torchs = nn.BatchNorm1d(4, B=2), torch.nn.BatchNorm1d(4)
    x = torch.randn(2, 6, 4, requires_grad=True)
    nn.checkpoint(layers, x).sum().backward()
    torch.utils.checkpoint.checkpoint(torchs, x[1], use_reentrant=False).sum().backward()
    assert_near(layers.running_var[1], torchs.running_var)
    assert layers.num_batches_tracked.tolist() == [2, 2]


def test_torchs_own_checkpoint_without_dropout():
    array = dnnsuite.fuse(make_models(Stack, 3)).eval()
    x = torch.randn(3, 4, 8)
    _, expected = gradients(array, x)
    array.checkpoint = lambda block, x: torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
    _, found = gradients(array, x)
    for a, b in zip(found, expected, strict=True):
        assert_near(a, b)
