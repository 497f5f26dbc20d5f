# SPDX-License-Identifier: MIT
"""A model's random numbers depend on its own seed, data and step, also where its code begins anew."""

import pytest
import torch

import dnnsuite
from dnnsuite import optim


class Rounded(torch.autograd.Function):
    """Has no rule for all models, so the part around it runs model by model."""

    @staticmethod
    def forward(ctx, x):
        return (x * 4).round() / 4

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Decides(torch.nn.Module):
    """Draws, then decides by a value in which models may differ, then draws again."""

    def __init__(self, limit):
        super().__init__()
        self.register_buffer("limit", torch.tensor(limit))
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x):
        x = self.drop(x + torch.randn_like(x))
        if (x.mean() > self.limit).any():
            x = x + 100
        return x + torch.rand(x.shape)


class Rounds(torch.nn.Module):
    def __init__(self, limit):
        super().__init__()
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x):
        return Rounded.apply(self.drop(x) + torch.randn_like(x)) + torch.rand_like(x)


class Around(torch.nn.Module):
    """Has the part inside, and draws itself."""

    def __init__(self, part, limit, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.part = torch.nn.Linear(4, 4), part(limit)

    def forward(self, x):
        return self.part(self.first(x) + torch.rand_like(x)) * torch.rand_like(x)


def weights(part, seeds, limits, ways):
    """The first model's weights after four steps, by hand (`ways` None) or by a runner of (threads, width)."""
    models = [Around(part, limit, seed) for seed, limit in zip(seeds, limits, strict=True)]
    array = dnnsuite.fuse(models, seeds=[10 + seed for seed in seeds])
    optimizer, slot = optim.SGD(array.parameters(), lr=0.01), seeds.index(0)
    x = dnnsuite.stack(torch.linspace(-1, 1, 24).view(6, 4), B=len(seeds))

    def losses(array, x):
        return array(x).square().flatten(1).mean(1)

    if ways is None:
        for _ in range(4):
            optimizer.zero_grad()
            losses(array, x).sum().backward()
            optimizer.step()
    else:
        with dnnsuite.StepRunner(array, optimizer, losses, threads=ways[0], width=ways[1]) as runner:
            for _ in range(4):
                runner.step(x)
    return array[slot].first.weight.detach()


@pytest.mark.parametrize("part", [Decides, Rounds])
def test_a_models_numbers_do_not_depend_on_its_neighbours(part):
    alone = weights(part, [0], [9.0], None)
    for seeds, limits in (([0, 1, 2], [9.0, 9.0, 9.0]), ([2, 1, 0], [-9.0, 9.0, 9.0]), ([0, 1], [9.0, -9.0])):
        for ways in (None, (1, len(seeds)), (1, 1), (2, 1)):
            torch.testing.assert_close(weights(part, seeds, limits, ways), alone, rtol=1e-5, atol=1e-6)
