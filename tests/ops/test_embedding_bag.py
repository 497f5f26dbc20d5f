# SPDX-License-Identifier: MIT
import pytest
import torch
from torch.nn import functional as F

from dnnsuite import ops
from dnnsuite.nn.sharing import spread

OFFSETS = torch.tensor([[0, 2, 9, 12], [0, 0, 5, 5], [0, 11, 11, 12]])


@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_bags_and_their_gradient_are_torchs(mean, shared):
    indices = torch.randint(7, (3, 12))
    offsets = OFFSETS
    if shared:
        indices, offsets = spread(indices[:1], 3), spread(offsets[:1], 3)
    tables = torch.randn(3, 7, 5, requires_grad=True)
    y = ops.embedding_bags(tables, indices, offsets, mean)
    weights = torch.randn_like(y)
    (grad,) = torch.autograd.grad((y * weights).sum(), tables)
    for model in range(3):
        table = tables[model].detach().requires_grad_()
        truth = F.embedding_bag(indices[model], table, offsets[model], mode="mean" if mean else "sum")
        assert torch.equal(y[model], truth)
        (expected,) = torch.autograd.grad((truth * weights[model]).sum(), table)
        torch.testing.assert_close(grad[model], expected)


def test_a_model_alone_has_the_bits_that_it_has_among_others():
    indices, tables = torch.randint(7, (3, 12)), torch.randn(3, 7, 5)

    def results(models):
        own = tables[models].clone().requires_grad_()
        y = ops.embedding_bags(own, indices[models], OFFSETS[models], True)
        return y.detach(), torch.autograd.grad(y.sin().sum(), own)[0]

    together = results(slice(0, 3))
    for i in range(3):
        alone = results(slice(i, i + 1))
        assert all(torch.equal(a[i], b[0]) for a, b in zip(together, alone, strict=True))


@pytest.mark.parametrize("mean", [False, True])
def test_a_gradient_that_is_differentiated_again(mean):
    tables = torch.randn(3, 7, 2, dtype=torch.float64, requires_grad=True)
    indices = torch.randint(7, (3, 12))

    def bags(w):
        return ops.embedding_bags(w, indices, OFFSETS, mean).sin()

    assert torch.autograd.gradcheck(bags, tables)
    assert torch.autograd.gradgradcheck(bags, tables)


def test_an_index_out_of_range_is_an_error():
    with pytest.raises(RuntimeError, match="not in the valid range"):
        ops.embedding_bags(torch.randn(2, 7, 5), torch.full((2, 3), 7), torch.tensor([[0, 1], [0, 1]]), False)
