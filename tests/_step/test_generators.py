# SPDX-License-Identifier: MIT
"""Steps that draw from generators of the whole process, with threads."""

import pytest
import torch

import dnnsuite
from dnnsuite import StepRunner, optim


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient * ctx.saved_tensors[0]


class Noisy(torch.nn.Module):
    """Runs one by one, as a plain module that torch's generator is lent to."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)

    def forward(self, x):
        hidden = Square.apply(self.inner(x))
        return hidden + torch.randn_like(hidden)


class Plain(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)

    def forward(self, x):
        return torch.tanh(self.inner(x))


def quiet_loss(part, x):
    return part(x).square().mean((1, 2))


def noisy_loss(part, x):
    out = part(x)
    return (out + torch.randn(out.shape[1:])).square().mean((1, 2))


def trained(kind, loss, threads, capture, steps=5):
    """Train on batches that the caller draws between steps, while others are under way."""
    torch.manual_seed(0)
    array = dnnsuite.fuse([kind() for _ in range(3)])
    optimizer = optim.SGD(array.parameters(), lr=0.01)
    with StepRunner(array, optimizer, loss, threads=threads, width=1, capture=capture) as runner:
        asked = [runner.step(torch.randn(3, 4, 3)) for _ in range(steps)]
        return torch.stack([step.losses() for step in asked])


@pytest.mark.parametrize("capture", [True, False])
@pytest.mark.parametrize(("kind", "loss"), [(Noisy, quiet_loss), (Plain, noisy_loss)])
def test_numbers_come_in_the_same_order_with_threads(kind, loss, capture):
    expected = trained(kind, loss, 1, False)
    assert torch.equal(trained(kind, loss, 2, capture), expected)
