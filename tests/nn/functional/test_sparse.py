# SPDX-License-Identifier: MIT
"""Bags of one length, and those that torch sums; the layers are in tests/nn/test_sparse.py."""

import pytest
import torch
from torch.nn import functional as F

from dnnsuite.nn import functional

ROWS, WIDTH = 9, 5


def results(indices, tables, **options):
    tables = tables.detach().requires_grad_()
    y = functional.embedding_bag(indices, tables, **options)
    grad = torch.cos(torch.arange(y[0].numel(), dtype=y.dtype)).view(y.shape[1:]).expand_as(y)
    return y.detach(), torch.autograd.grad(y, tables, grad)[0]


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("options", [{}, {"padding_idx": 2}, {"scale_grad_by_freq": True}])
@pytest.mark.parametrize("shape", [(1, 4, 3), (3, 4, 3), (3, 1, 1), (3, 2, 40)])
@pytest.mark.parametrize("shared", [False, True])
def test_bags_of_one_length(mode, options, shape, shared):
    if mode == "max" and "scale_grad_by_freq" in options:
        pytest.skip("torch has no such gradient")
    indices = torch.randint(ROWS, (1, *shape[1:]) if shared else shape).expand(shape)
    tables = torch.randn(shape[0], ROWS, WIDTH, dtype=torch.float64)
    y, grad = results(indices, tables, mode=mode, **options)
    for model, (own, table) in enumerate(zip(indices, tables, strict=True)):
        table.requires_grad_()
        truth = F.embedding_bag(own, table, mode=mode, **options)
        factors = torch.cos(torch.arange(truth.numel(), dtype=truth.dtype)).view(truth.shape)
        torch.testing.assert_close(y[model], truth.detach())
        torch.testing.assert_close(grad[model], torch.autograd.grad(truth, table, factors)[0])


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("shape", [(3, 4, 7), (3, 1, 50), (3, 9, 1)])
@pytest.mark.parametrize("width", [1, 5, 64])
def test_a_model_alone_has_the_bits_that_it_has_among_others(mode, shape, width):
    indices, tables = torch.randint(ROWS, shape), torch.randn(shape[0], ROWS, width)
    together = results(indices, tables, mode=mode)
    for i in range(shape[0]):
        alone = results(indices[i : i + 1], tables[i : i + 1], mode=mode)
        assert all(torch.equal(a[i], b[0]) for a, b in zip(together, alone, strict=True))


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_weights_of_samples_and_bags_of_nothing(mode):
    tables = torch.randn(2, ROWS, WIDTH)
    assert functional.embedding_bag(torch.zeros(2, 0, 3, dtype=torch.int64), tables, mode=mode).shape == (2, 0, WIDTH)
    indices, weights = torch.randint(ROWS, (2, 3, 4)), torch.randn(2, 3, 4)
    y = functional.embedding_bag(indices, tables, mode="sum", per_sample_weights=weights)
    rows = torch.stack([table[own] for own, table in zip(indices, tables, strict=True)])
    torch.testing.assert_close(y, (rows * weights.unsqueeze(-1)).sum(2))


def test_the_gradient_of_a_maximum_goes_to_the_first_of_equal_rows():
    tables = torch.zeros(2, ROWS, WIDTH)
    indices = torch.tensor([[[5, 3, 5], [1, 1, 2]]]).expand(2, -1, -1)
    _, grad = results(indices, tables, mode="max")
    truth = F.embedding_bag(indices[0], table := tables[0].requires_grad_(), mode="max")
    factors = torch.cos(torch.arange(truth.numel(), dtype=truth.dtype)).view(truth.shape)
    assert torch.equal(grad[1], torch.autograd.grad(truth, table, factors)[0])
