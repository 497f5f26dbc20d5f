# SPDX-License-Identifier: MIT
"""Reads that torch's dispatcher does not see are recorded, or named."""

import pytest
import torch

import dnnsuite
from dnnsuite import StepRunner, optim
from helpers import make_models

B = 2


def by_list(array, x, lengths):
    return array(x).square().mean((1, 2)) * sum(lengths[0].tolist())


def by_numpy(array, x, lengths):
    return array(x).square().mean((1, 2)) * float(lengths.numpy().sum())


class Listing(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 2)

    def forward(self, x, lengths):
        return self.inner(x) * lengths.tolist()[0]


def in_the_model(array, x, lengths):
    return array(x, lengths[:, :1]).square().mean((1, 2))


def losses_of(make, loss, capture):
    array = dnnsuite.fuse(make_models(make, B))
    optimizer = optim.SGD(array.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(0)
    with StepRunner(array, optimizer, loss, threads=1, width=B, capture=capture) as runner:
        losses = []
        for step in range(10):
            x = torch.randn(B, 3, 4, generator=generator)
            lengths = torch.full((B, 3), 2 if step < 5 else step % 2)
            losses.append(runner.step(x, lengths).losses().clone())
        return torch.stack(losses), runner.mode


@pytest.mark.parametrize(
    ("make", "loss", "mode"),
    [
        (lambda: torch.nn.Linear(4, 2), by_list, "captured"),
        (Listing, in_the_model, "captured"),
        (lambda: torch.nn.Linear(4, 2), by_numpy, "eager: Tensor.numpy hands a tensor's values to Python at test_"),
    ],
)
def test_a_value_that_changes_late_is_noticed(make, loss, mode):
    captured, how = losses_of(make, loss, True)
    assert torch.equal(captured, losses_of(make, loss, False)[0])
    assert how.startswith(mode)
