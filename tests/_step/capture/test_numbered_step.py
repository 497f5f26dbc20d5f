# SPDX-License-Identifier: MIT
"""Each way that numbers lead a step has a recording of its own, up to a few."""

import dataclasses

import pytest
import torch

import dnnsuite
from dnnsuite import StepRunner, optim
from dnnsuite._step.capture import looks
from helpers import make_models


@pytest.mark.parametrize(("ways", "mode"), [(4, "captured"), (looks.MAX_WAYS + 1, "eager: a number that")])
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


@pytest.mark.parametrize("held", ["attribute", "dict"])
def test_models_that_run_one_by_one_get_their_numbers_back(held):
    """A stand-in is equal to its number: nothing may take it for the number itself."""

    class Penalised(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.factor, self.table = torch.nn.Linear(3, 2), 1.0, {"factor": 1.0}

        def forward(self, x):
            x = x.detach().requires_grad_()
            out = self.layer(x)
            (slope,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
            factor = self.factor if held == "attribute" else self.table["factor"]
            return out.square().mean() + factor * slope.square().mean()

    def put(model, value):
        if held == "attribute":
            model.factor = value
        else:
            model.table["factor"] = value

    models = make_models(Penalised, 2)
    array = dnnsuite.fuse(models)
    optimizer, x = optim.SGD(array.parameters(), lr=0.05), torch.randn(2, 4, 3)
    torchs = [torch.optim.SGD(model.parameters(), lr=0.05) for model in models]
    with StepRunner(array, optimizer, lambda part, x: part(x), width=1, threads=1) as runner:
        for value in [1.0, 1.0, 1.0, 5.0, 5.0, 5.0, 5.0, 0.0, 0.0, 0.5, 0.7, 0.9]:
            put(array, value)
            losses = runner.step(x).losses()
            for model, own, data, loss in zip(models, torchs, x, losses, strict=True):
                put(model, value)
                own.zero_grad()
                expected = model(data)
                expected.backward()
                own.step()
                torch.testing.assert_close(loss, expected.detach())


class Hooked(torch.nn.Module):
    """Code whose hook of a gradient uses a number: torch hands it to operators out of sight of function modes."""

    def __init__(self):
        super().__init__()
        self.layer, self.clip = torch.nn.Linear(3, 2), 1.0

    def forward(self, x):
        out = self.layer(x)
        if out.requires_grad:
            out.register_hook(lambda grad: grad.clamp(-self.clip, self.clip) * 2.0)
        return out


def test_a_number_of_a_hook_that_changes():
    plain = make_models(Hooked, 2)
    array = dnnsuite.fuse(make_models(Hooked, 2))
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in plain]
    with StepRunner(
        array, optim.SGD(array.parameters(), lr=0.1), lambda part, x: part(x).square().sum((1, 2)), threads=1
    ) as runner:
        for step in range(20):
            x = torch.randn(2, 4, 3)
            for model in (*plain, array):
                model.clip = 0.2 + 0.05 * step
            found = runner.step(x).losses()
            for index, (model, optimizer) in enumerate(zip(plain, optimizers, strict=True)):
                optimizer.zero_grad()
                loss = model(x[index]).square().sum()
                loss.backward()
                optimizer.step()
                torch.testing.assert_close(found[index], loss.detach(), rtol=1e-4, atol=1e-5)


def test_what_a_number_lets_a_step_write_is_written_once():
    """A step is tried with stand-ins before it is made: the trial leaves nothing, also where no step before has written
    into a tensor."""
    array = dnnsuite.fuse(make_models(lambda: torch.nn.Linear(3, 2), 2))
    factor, total, expected = [0.0], torch.zeros(2), torch.zeros(2)

    def loss(part, x):
        own = part(x).square().mean((1, 2)) * factor[0]
        if factor[0] > 1.0:
            total.add_(own.detach() * factor[0])
        return own

    x = torch.ones(2, 4, 3)
    with StepRunner(array, optim.SGD(array.parameters(), lr=0.0), loss, width=2, threads=1) as runner:
        for step in range(24):
            factor[0] = 0.25 + 0.125 * step
            losses = runner.step(x).losses()
            expected += losses * factor[0] if factor[0] > 1.0 else 0
            torch.testing.assert_close(total, expected)
        assert runner.mode == "captured"
