# SPDX-License-Identifier: MIT
"""torch's optimizers on an array's parameters: each model's own step, or a refusal."""

import pytest
import torch

import dnnsuite
from dnnsuite import optim
from dnnsuite.errors import InvalidArgument
from dnnsuite.ops.torch_on_arrays import take_over
from helpers import make_models

B = 3


def squares(model, x):
    return model(x).square().mean((-1, -2))


def make():
    return torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))


@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop", "Adagrad", "Rprop"])
def test_steps_of_single_numbers_are_each_models(name):
    models = make_models(make, B, torch.float64)
    array = dnnsuite.fuse(models)
    x = torch.randn(B, 6, 4, dtype=torch.float64)
    steps = getattr(torch.optim, name)(array.parameters(), lr=0.01)
    for _ in range(3):
        steps.zero_grad()
        squares(array, x).sum().backward()
        steps.step()
    for index, model in enumerate(models):
        own = getattr(torch.optim, name)(model.parameters(), lr=0.01)
        for _ in range(3):
            own.zero_grad()
            squares(model, x[index]).backward()
            own.step()
        for mine, theirs in zip(array.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(mine[index], theirs)


@pytest.mark.parametrize("name", ["LBFGS", "Adafactor", "Muon"])
def test_steps_that_would_couple_models_are_refused(name):
    if not hasattr(torch.optim, name):
        pytest.skip(f"this torch has no {name}")
    array = dnnsuite.fuse(make_models(make, B))
    x = torch.randn(B, 6, 4)
    before = [p.detach().clone() for p in array.parameters()]
    biases = [p for p in array.parameters() if p.dim() == 2]  # Muon takes matrices alone
    steps = getattr(torch.optim, name)(biases, lr=0.1)
    losses = squares(array, x)
    losses.sum().backward()
    with pytest.raises(InvalidArgument, match=f"use dnnsuite.optim.{name}, or"):
        steps.step(lambda: squares(array, x).sum())
    for p, old in zip(array.parameters(), before, strict=True):
        assert torch.equal(p, old)
    model = array[0]
    own = getattr(torch.optim, name)([p for p in model.parameters() if p.dim() == 2], lr=0.1)

    def closure():
        own.zero_grad()
        loss = squares(model, x[0])
        loss.backward()
        return loss

    first = own.step(closure)
    assert closure() < first


def test_a_step_runner_sees_no_hook_of_a_users():
    array = dnnsuite.fuse(make_models(make, B))
    take_over()
    steps = optim.SGD(array.parameters(), lr=0.1)
    with dnnsuite.StepRunner(array, steps, squares, threads=1) as runner:
        assert runner.step(torch.randn(B, 6, 4)).losses().shape == (B,)
        handle = steps.register_step_pre_hook(lambda *_: None)
        with pytest.raises(InvalidArgument, match="hook before each step"):
            runner.step(torch.randn(B, 6, 4))
        handle.remove()


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr=0.01):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                average = self.state[p].setdefault("average", torch.zeros_like(p))
                p.sub_((0.9 * average + 0.1 * p.grad).sign(), alpha=group["lr"])
                average.mul_(0.99).add_(p.grad, alpha=0.01)


class Lars(Lion):
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(p.grad * (p.norm() / p.grad.norm()), alpha=group["lr"])


class Lars0(Lars):
    keeps_models_apart = True

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                norms = [t.flatten(1).norm(dim=1) for t in (p, p.grad)]
                rate = (norms[0] / norms[1]).reshape(-1, *[1] * (p.dim() - 1))
                p.sub_(p.grad * rate, alpha=group["lr"])


@pytest.mark.parametrize(("kind", "own"), [(Lion, Lion), (Lars0, Lars)])
def test_others_optimizers_of_single_numbers_train_each_model(kind, own):
    models = make_models(make, B, torch.float64)
    array = dnnsuite.fuse(models)
    x = torch.randn(B, 6, 4, dtype=torch.float64)
    for part, data in [(array, x), *zip(models, x, strict=True)]:
        steps = (kind if part is array else own)(part.parameters())
        for _ in range(4):
            steps.zero_grad()
            squares(part, data).sum().backward()
            steps.step()
    for index, model in enumerate(models):
        for mine, theirs in zip(array.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(mine[index], theirs)


def test_others_optimizers_that_would_couple_models_are_refused():
    models = make_models(make, B)
    array = dnnsuite.fuse(models)
    steps = Lars(models[0].parameters())  # a model by itself is not concerned
    squares(models[0], torch.randn(6, 4)).backward()
    steps.step()
    steps.add_param_group({"params": [next(array.parameters())]})
    with pytest.raises(InvalidArgument, match="a step of Lars, tried on two small models"):
        steps.step()


def test_optimizers_of_ours_may_be_extended():
    class Clipped(optim.SGD):
        def length(self):
            return sum(p.flatten(1).norm(dim=1) for group in self.param_groups for p in group["params"])

    array = dnnsuite.fuse(make_models(make, B))
    assert Clipped(array.parameters(), lr=0.1).length().shape == (B,)
