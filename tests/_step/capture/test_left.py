# SPDX-License-Identifier: MIT
"""Tensors that a forward leaves in attributes, as maps of attention: each step's own, replayed too."""

import pytest
import torch

import dnnsuite
from dnnsuite import StepRunner, optim

B = 3


class Gate(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.route, self.aux, self.shares = torch.nn.Linear(4, 4), None, None

    def forward(self, x):
        shares = torch.softmax(self.route(x), -1)
        self.shares, self.aux = shares.detach(), shares.square().mean()
        return x * shares


class Experts(torch.nn.Module):
    """Leaves what the loss function reads, and what its user may read after the step."""

    def __init__(self):
        super().__init__()
        self.first, self.second = Gate(), Gate()
        self.count = 0

    def forward(self, x):
        return self.second(self.first(x))


class Counting(Experts):
    """Takes numbers as inputs of its recording."""

    def forward(self, x):
        self.count += 1
        return super().forward(x) * (1 + 1 / self.count)


def losses(array, x):
    return array(x).square().flatten(1).mean(1)


@pytest.mark.parametrize(("threads", "width"), [(1, 3), (1, 1), (2, 1)])
@pytest.mark.parametrize("kind", [Experts, Counting])
def test_what_a_step_leaves_is_its_own(kind, threads, width):
    torch.manual_seed(0)
    array = dnnsuite.fuse([kind() for _ in range(B)])
    optimizer = optim.SGD(array.parameters(), lr=0.1)
    with StepRunner(array, optimizer, losses, threads=threads, width=width, audit=1) as runner:
        for step in range(16):
            x = torch.randn(B, 5, 4)
            models = [array[i] for i in range(B)] if step > 10 else []
            runner.step(x)
            for i, model in enumerate(models):
                with torch.no_grad():
                    model(x[i])
                torch.testing.assert_close(array[i].first.shares, model.first.shares)
                torch.testing.assert_close(array[i].second.aux.detach(), model.second.aux)
        assert runner.mode == "captured"
        assert runner.audits_passed > 0


def test_a_later_runner_leaves_them_from_its_first_step():
    for _ in range(2):
        array = dnnsuite.fuse([Experts() for _ in range(B)])
        with StepRunner(array, optim.SGD(array.parameters(), lr=0.0), losses, threads=1, width=B) as runner:
            for _ in range(3):
                x = torch.randn(B, 5, 4)
                runner.step(x)
                model = array[1]
                model(x[1])
                torch.testing.assert_close(array[1].first.shares, model.first.shares)
