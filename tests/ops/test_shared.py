# SPDX-License-Identifier: MIT
"""Operators with a weight that all models share compute what they do with a copy for each, to the bit."""

import pytest
import torch

from dnnsuite import ops
from dnnsuite.nn import functional
from dnnsuite.ops.shared import beside, folded, is_frozen, is_shared, once, spread

B = 3


def test_what_is_shared():
    one = torch.randn(1, 4)
    shared = spread(one, B)
    assert is_shared(shared)
    assert not is_shared(one)
    assert not is_shared(shared.clone())
    assert is_frozen(None)
    assert not is_frozen(spread(one.clone().requires_grad_(), B))
    doubled = once(lambda x: 2 * x, shared)
    assert is_shared(doubled)
    assert torch.equal(doubled, 2 * shared)
    assert folded(torch.zeros(B, 5, 2)).shape == (1, 15, 2)


def linear(x, weight, bias):
    return ops.linear(x, weight, bias, "gelu")


def rounded(x, weight, bias):
    return ops.linear(x, weight, bias, dtype=torch.bfloat16)


def convolved(x, weight, bias):
    return functional.conv2d(x, weight, bias, padding=1)


def transposed(x, weight, bias):
    return functional.conv_transpose2d(x, weight.transpose(1, 2), bias)


CASES = {
    "linear": (linear, (5, 7), (9, 7), (9,)),
    "large": (lambda x, w: ops.linear(x, w), (600, 512), (700, 512)),
    "16 bits": (rounded, (5, 7), (9, 7), (9,)),
    "matmul": (ops.matmul, (4, 5, 7), (1, 7, 9)),
    "convolution": (convolved, (4, 3, 8, 8), (6, 3, 3, 3), (6,)),
    "one tap": (functional.conv2d, (4, 3, 8, 8), (6, 3, 1, 1), (6,)),
    "line": (functional.conv1d, (4, 3, 9), (6, 3, 3), (6,)),
    "transposed": (transposed, (4, 3, 5, 5), (6, 3, 3, 3), (6,)),
    "layer norm": (lambda x, w, b: functional.layer_norm(x, (7,), w, b), (4, 7), (7,), (7,)),
    "group norm": (lambda x, w, b: functional.group_norm(x, 2, w, b), (4, 8, 3), (8,), (8,)),
}


@pytest.mark.parametrize("own", [False, True], ids=["all shared", "a bias of each model's own"])
@pytest.mark.parametrize("case", CASES)
def test_same_as_with_copies(case, own):
    operator, *shapes = CASES[case]
    if own and len(shapes) < 3:
        pytest.skip("it has no bias")
    torch.manual_seed(0)
    x = torch.randn(B, *shapes[0])
    weights = [spread(torch.randn(1, *shape), B) for shape in shapes[1:]]
    if own:
        weights[-1] = torch.randn(B, *shapes[-1])
    found = []
    for given in (weights, [weight.clone() for weight in weights]):
        mine = x.clone().requires_grad_()
        y = operator(mine, *given)
        y.backward(torch.ones_like(y))
        found.append((y.detach(), mine.grad))
    for shared, copied in zip(*found, strict=True):
        torch.testing.assert_close(shared, copied, rtol=1e-6, atol=1e-6)
        assert own or torch.equal(shared, copied)


def test_rows_of_a_table():
    table, indices = torch.randn(1, 9, 4), torch.randint(0, 9, (B, 5))
    assert torch.equal(ops.embedding(spread(table, B), indices), table[0][indices])
    rows = ops.embedding(spread(table, B), spread(indices[:1], B))
    assert is_shared(rows)
    assert torch.equal(rows[2], table[0][indices[0]])


def test_a_shared_batch_is_multiplied_once():
    x, weight = spread(torch.randn(1, 5, 7), B), spread(torch.randn(1, 9, 7), B)
    y = ops.linear(x, weight)
    assert is_shared(y)
    torch.testing.assert_close(y[1], x[1] @ weight[1].t())


def test_a_number_per_model_lies_beside_any_tensor():
    vector = torch.tensor([1.0, 2.0])
    for shape in [(2,), (2, 3), (2, 1, 4)]:
        assert torch.equal(
            beside(vector, torch.ones(shape)) * torch.ones(shape), torch.stack([v.expand(shape[1:]) for v in vector])
        )
