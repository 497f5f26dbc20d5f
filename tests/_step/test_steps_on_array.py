# SPDX-License-Identifier: MIT
"""Steps that run Python compute with the array itself: what each model has of its own is the array's at any time."""

import pytest
import torch

from trained_models import check_trained


def average(block, y):
    block.average = 0.9 * block.average + 0.1 * float(y.detach().abs().mean())
    return y / (1 + block.average)


def best(block, y):
    now = y.detach().square().mean().item()
    block.average = min(now, block.average or now)
    block.worse = 0 if now == block.average else getattr(block, "worse", 0) + 1
    return y * (1 + 0.1 * block.worse)


class Block(torch.nn.Module):
    def __init__(self, act):
        super().__init__()
        self.inner, self.act, self.average = torch.nn.Linear(4, 4), act, 0.0

    def forward(self, x):
        return self.act(self, self.inner(x))


class Blocks(torch.nn.Module):
    """Two blocks whose models run one by one, in a whole that could run all models at once."""

    def __init__(self, act):
        super().__init__()
        self.blocks, self.norm = torch.nn.ModuleList([Block(act), Block(act)]), torch.nn.LayerNorm(4)

    def forward(self, x):
        for block in self.blocks:
            x = self.norm(block(x))
        return x


def seen(model):
    return [(round(block.average, 9), getattr(block, "worse", 0)) for block in model.blocks]


@pytest.mark.parametrize("steps", [5, 9])  # eager ones, a loop over whole models or over those of blocks
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("act", [average, best])
def test_what_each_model_has_is_there_after_eager_steps_in_which_nobody_looked(act, threads, steps):
    check_trained(lambda: Blocks(act), B=3, seen=seen, steps=steps, threads=threads)


class Late(torch.nn.Module):
    """Makes an attribute in its first step."""

    def __init__(self):
        super().__init__()
        self.layer, self.highest = torch.nn.Linear(4, 4), 0.0

    def forward(self, x):
        y = self.layer(x)
        self.highest = max(self.highest, y.detach().abs().max().item())
        self.late = getattr(self, "late", 0) + 1
        return y * (1 + 0.1 * self.late)


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("threads", [1, 2])
def test_what_a_step_has_made_may_be_set_after_it(threads, width):
    def between(model):
        model.late = 3

    check_trained(Late, B=3, between=between, seen=lambda model: model.late, threads=threads, width=width)
