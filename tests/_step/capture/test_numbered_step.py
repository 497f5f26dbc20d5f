# SPDX-License-Identifier: MIT
"""Each way that numbers lead a step has a recording of its own, up to a few."""

import pytest
import torch

import dnnsuite
from dnnsuite import StepRunner, optim
from dnnsuite._step.capture import numbered_step
from helpers import make_models


@pytest.mark.parametrize(
    ("ways", "mode"), [(4, "captured"), (numbered_step.MAX_WAYS + 1, "eager: a number that")]
)
def test_ways_are_few(ways, mode):
    array = dnnsuite.fuse(make_models(lambda: torch.nn.Linear(3, 2), 2))
    count, factors = [1], [0.3 + 0.1 * way for way in range(ways)]

    def loss(part, x):
        return part(x).square().mean((1, 2)) * factors[count[0] % len(factors)]

    optimizer = optim.SGD(array.parameters(), lr=0.0)
    x = torch.ones(2, 4, 3)
    with StepRunner(array, optimizer, loss, width=2, threads=1) as runner:
        losses = []
        for _ in range(5 * ways):
            count[0] += 1
            losses.append((runner.step(x).losses() / factors[count[0] % ways]).clone())
        assert runner.mode.startswith(mode)
    torch.testing.assert_close(torch.stack(losses), losses[0].expand(len(losses), 2))
