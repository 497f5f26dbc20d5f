# SPDX-License-Identifier: MIT
"""Values that a model's code has kept, or reads, of tensors: after an edit those of the new model."""

import pytest
import torch

import dnnsuite
from dnnsuite import StepRunner, optim

INPUTS = 6


class Remembering(torch.nn.Module):
    """A layer that keeps a product of its weights of the first forward."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(INPUTS, 3)
        self.first = None

    def forward(self, x):
        if self.first is None:
            self.first = self.layer.weight.detach().square().sum(1)
        return self.layer(x) + self.first


@pytest.mark.parametrize("threads", [1, 2])
def test_a_new_model_does_not_get_what_the_code_has_kept_of_the_old_one(threads):
    def made(seed):
        torch.manual_seed(seed)
        return Remembering().double()

    array, plain = dnnsuite.fuse([made(seed) for seed in range(3)]), made(1)
    opt = optim.SGD(array.parameters(), lr=0.1)
    with StepRunner(array, opt, lambda part, x: part(x).square().mean((1, 2)), threads=threads) as runner:
        for step in range(10):
            if step == 5:
                array.replace(1, made(7), opt)
                plain = made(7)
            x = torch.randn(4, INPUTS, dtype=torch.float64)
            mine = runner.step(dnnsuite.stack(x, 3)).losses()[1]
            loss = plain(x).square().mean()
            gradients = torch.autograd.grad(loss, [*plain.parameters()])
            with torch.no_grad():
                for parameter, gradient in zip(plain.parameters(), gradients, strict=True):
                    parameter -= 0.1 * gradient
            torch.testing.assert_close(mine, loss.detach(), rtol=1e-9, atol=1e-11)


class Switched(torch.nn.Module):
    """A layer with a factor in a buffer, which its code reads."""

    def __init__(self, factor):
        super().__init__()
        self.layer = torch.nn.Linear(INPUTS, 3)
        self.register_buffer("factor", torch.tensor(factor, dtype=torch.float64))

    def forward(self, x):
        return self.layer(x) * self.factor.item()


def test_values_that_python_reads_of_new_models_are_theirs_at_any_number_of_edits():
    array = dnnsuite.fuse([Switched(1.0).double() for _ in range(2)])
    opt, x = optim.SGD(array.parameters(), lr=0.0), torch.ones(4, INPUTS, dtype=torch.float64)
    with StepRunner(array, opt, lambda part, x: part(x).sum((1, 2)), threads=1, width=1) as runner:
        for step in range(47):
            if step % 4 == 3:
                new = Switched(float(step)).double()
                array.replace(1, new, opt)
                expected = new(x).sum().detach()
            losses = runner.step(dnnsuite.stack(x, 2)).losses()
            if step > 3:
                torch.testing.assert_close(losses[1], expected)
        assert runner.mode == "captured", runner.mode
