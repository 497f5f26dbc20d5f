# SPDX-License-Identifier: MIT
"""Forwards that flip flags of parameters, and read or clear their gradients: array against separate models in
float64."""

import copy

import pytest
import torch
from torch.nn.functional import softplus

import dnnsuite
from dnnsuite import StepRunner, nn, optim

B, STEPS = 3, 5


class Pair(torch.nn.Module):
    """A generator and a judge."""

    def __init__(self):
        super().__init__()
        self.maker, self.judge = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
        self.unused = torch.nn.Linear(4, 1)

    def judged(self, x):
        return softplus(-self.judge(self.maker(x))).mean()

    def moved(self, x, **how):
        """Move x against the loss, by a backward pass of the forward's own."""
        x = x.clone().detach().requires_grad_(True)
        self.judged(x).backward(**how)
        return (x + 0.1 * x.grad.sign()).detach()


class ByMethod(Pair):
    def forward(self, x):
        self.judge.requires_grad_(False)
        loss = self.judged(x)
        self.judge.requires_grad_(True)
        return loss


class ByAttribute(Pair):
    def forward(self, x):
        for parameter in self.judge.parameters():
            parameter.requires_grad = False
        loss = self.judged(x)
        for parameter in self.judge.parameters():
            parameter.requires_grad = True
        return loss


class LeftFrozen(Pair):
    def forward(self, x):
        self.judge.weight.requires_grad_(False)
        return self.judged(x)


class LeftFrozenAlone(Pair):
    def forward(self, x):
        self.judge.weight.requires_grad_(False)
        return self.judged(self.moved(x)) + 0 * float(x.mean())


class Cleared(Pair):
    def forward(self, x):
        x = self.moved(x)
        self.zero_grad()
        return self.judged(x)


class SetToZero(Pair):
    def forward(self, x):
        x = self.moved(x)
        self.zero_grad(set_to_none=False)
        return self.judged(x)


class Added(Pair):
    def forward(self, x):
        return self.judged(self.moved(x))


class Constant(Pair):
    """Freezes all for an inner backward pass, as samplers of energy models do."""

    def forward(self, x):
        for parameter in self.parameters():
            parameter.requires_grad = False
        x = self.moved(x)
        assert all(parameter.grad is None and not parameter.requires_grad for parameter in self.parameters())
        for parameter in self.parameters():
            parameter.requires_grad = True
        return self.judged(x)


class Looked(Pair):
    """Scales its loss by the norm of a gradient, and gives gradients back that it had."""

    def forward(self, x):
        assert self.unused.weight.grad is None
        assert self.judge.weight.is_leaf
        assert self.judge.weight.grad_fn is None
        self.judged(x).backward()
        norm = self.judge.weight.grad.norm().detach()
        self.maker.weight.grad = self.maker.weight.grad * 0.5
        self.judge.zero_grad()
        del self.maker.bias.grad
        return self.judged(x) / (1 + norm)


KINDS = [ByMethod, ByAttribute, LeftFrozen, LeftFrozenAlone, Cleared, SetToZero, Added, Constant, Looked]


def made(kind):
    torch.manual_seed(0)
    return [kind().double() for _ in range(B)]


def separate(kind, batches, how):
    found = made(kind)
    for index, model in enumerate(found):
        optimizer = optim_of(torch.optim, model, how)
        for x in batches:
            optimizer.zero_grad()
            model(x[index]).backward()
            optimizer.step()
    return found


def optim_of(module, model, how):
    return getattr(module, how)(model.parameters(), lr=0.1, weight_decay=0.1)


def trained(array, optimizer, batches, threads, **how):
    if not threads:
        for x in batches:
            optimizer.zero_grad()
            array(x.clone()).sum().backward()
            optimizer.step()
        return
    with StepRunner(array, optimizer, lambda part, x: part(x), threads=threads, **how) as runner:
        for x in batches:
            runner.step(x)


@pytest.mark.parametrize(("threads", "how"), [(0, "SGD"), (1, "Adam"), (2, "SGD")])
@pytest.mark.parametrize("kind", KINDS)
def test_as_separate_models(kind, threads, how):
    batches = torch.randn(STEPS, B, 5, 4, dtype=torch.float64)
    array = dnnsuite.fuse(made(kind))
    trained(array, optim_of(optim, array, how), batches, threads)
    for index, model in enumerate(separate(kind, batches, how)):
        for name, value in model.state_dict().items():
            torch.testing.assert_close(array.state_dict()[name][index], value)


class NoisyLeftFrozen(LeftFrozenAlone):
    def moved(self, x, **how):
        return super().moved(x + 0.1 * torch.randn_like(x), **how)


@pytest.mark.parametrize("kind", [LeftFrozen, LeftFrozenAlone, NoisyLeftFrozen])
def test_flags_stay_as_the_forward_leaves_them(kind):
    array = dnnsuite.fuse(made(kind))
    array(torch.randn(B, 5, 4, dtype=torch.float64))
    flags = {name: parameter.requires_grad for name, parameter in array.named_parameters()}
    assert [name for name, flag in flags.items() if not flag] == ["judge.weight"]


class Thawed(Pair):
    def forward(self, x):
        self.judge.requires_grad_(True)
        return self.judged(self.moved(x))


def test_a_frozen_parameter_is_thawed():
    batches = torch.randn(STEPS, B, 5, 4, dtype=torch.float64)
    models = made(Thawed)
    for model in models:
        model.judge.requires_grad_(False)
    array, alone = dnnsuite.fuse(models), copy.deepcopy(models)
    trained(array, optim.SGD(array.parameters(), lr=0.1), batches, 0)
    for index, model in enumerate(alone):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x in batches:
            optimizer.zero_grad()
            model(x[index]).backward()
            optimizer.step()
        torch.testing.assert_close(array.judge.weight[index], model.judge.weight)


class ThawedByValue(Thawed):
    def forward(self, x):
        return super().forward(x) + 0 * float(x.mean())


class InStages(Pair):
    """Thaws the judge after some steps, and freezes a part of it later: the runner replays them."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def forward(self, x):
        self.count += 1
        if self.count == 4:
            self.judge.requires_grad_(True)
        if self.count == 9:
            self.judge.bias.requires_grad_(False)
        return self.judged(x)


@pytest.mark.parametrize(("threads", "width"), [(1, 1), (2, None), (2, B)])
@pytest.mark.parametrize(("kind", "steps"), [(ThawedByValue, STEPS), (InStages, 13)])
def test_a_thawed_parameter_and_its_state_in_the_optimizer_are_the_arrays_too(kind, steps, threads, width):
    batches = torch.randn(steps, B, 5, 4, dtype=torch.float64)
    models = made(kind)
    for model in models:
        model.judge.requires_grad_(False)
    array, alone = dnnsuite.fuse(models), copy.deepcopy(models)
    optimizer = optim.Adam(array.parameters(), lr=0.1)
    trained(array, optimizer, batches, threads, width=width)
    for index, model in enumerate(alone):
        optimizer_alone = torch.optim.Adam(model.parameters(), lr=0.1)
        for x in batches:
            optimizer_alone.zero_grad()
            model(x[index]).backward()
            optimizer_alone.step()
        for name, value in model.state_dict().items():
            torch.testing.assert_close(array.state_dict()[name][index], value)
        for mine, theirs in zip(array.parameters(), model.parameters(), strict=True):
            assert mine.requires_grad == theirs.requires_grad
            state = optimizer_alone.state[theirs]
            if "exp_avg" in state:
                torch.testing.assert_close(optimizer.state[mine]["exp_avg"][index], state["exp_avg"])


class Noisy(Constant):
    def moved(self, x, **how):
        return super().moved(x + 0.1 * torch.randn_like(x), **how)


class NoisyThawed(Thawed):
    def moved(self, x, **how):
        return super().moved(x + 0.1 * torch.randn_like(x), **how)


@pytest.mark.parametrize("threads", [0, 1, 2])
@pytest.mark.parametrize("kind", [Noisy, NoisyThawed])
def test_with_random_numbers_as_arrays_of_one(kind, threads):
    batches = torch.randn(STEPS, B, 5, 4, dtype=torch.float64)
    models = made(kind)
    for model in models:
        model.judge.requires_grad_(kind is Noisy)
    array = dnnsuite.fuse(models)
    streams = nn.get_rng_state(array)
    alone = [dnnsuite.fuse([model]) for model in models]
    for index, one in enumerate(alone):
        nn.set_rng_state(one, {name: value[index : index + 1].clone() for name, value in streams.items()})
        trained(one, optim.Adam(one.parameters(), lr=0.1), batches[:, index : index + 1], 0)
    trained(array, optim.Adam(array.parameters(), lr=0.1), batches, threads)
    for index, one in enumerate(alone):
        for name, value in one.state_dict().items():
            torch.testing.assert_close(array.state_dict()[name][index], value[0])
