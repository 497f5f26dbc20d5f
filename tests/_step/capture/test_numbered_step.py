# SPDX-License-Identifier: MIT
"""Each way that numbers lead a step has a recording of its own, up to a few."""

import dataclasses

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


@dataclasses.dataclass
class Weighted:
    x: torch.Tensor
    beta: float


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("make", [lambda x, beta: {"x": x, "beta": beta}, Weighted])
def test_numbers_in_a_batch_are_inputs(make, threads):
    def losses(part, batch):
        x, beta = (batch["x"], batch["beta"]) if isinstance(batch, dict) else (batch.x, batch.beta)
        return part(x).square().mean((1, 2)) * beta

    array = dnnsuite.fuse(make_models(lambda: torch.nn.Linear(3, 2), 2))
    optimizer, x = optim.SGD(array.parameters(), lr=0.0), torch.ones(2, 4, 3)
    with StepRunner(array, optimizer, losses, width=1, threads=threads) as runner:
        first = runner.step(make(x, 1.5)).losses() / 1.5
        for index in range(12):
            found = runner.step(make(x, 2.0 + index)).losses()
            torch.testing.assert_close(found, first * (2.0 + index))
        assert runner.mode == "captured"
