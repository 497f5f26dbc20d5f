# SPDX-License-Identifier: MIT
"""Buffers that a model's own code changes, writes anew, or makes late: they are the array's as they are the model's."""

import copy

import pytest
import torch

import dnnsuite
from dnnsuite.errors import InvalidArgument
from helpers import Negated, assert_near, make_models

STEPS = 3


class Averaging(torch.nn.Module):
    """Keeps a mean that is used before and after it is written; `how` decides the way that the models run."""

    def __init__(self, how):
        super().__init__()
        self.inner = torch.nn.Linear(4, 6)
        self.norm = torch.nn.BatchNorm1d(6)
        self.register_buffer("mean", torch.ones(6))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
        self.how = how

    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, x):
        hidden = self.norm(self.inner(x))
        before = hidden * self.mean
        self.mean = 0.9 * self.mean + 0.1 * hidden.detach().mean(0)
        self.count += 1
        if self.how == "own gradient":
            hidden = Negated.apply(hidden)
        if self.how == "branch" and hidden.sum() > 0:
            hidden = hidden * 2
        return before + hidden * self.mean


def train_alone(model, data):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in data:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize("how", ["at once", "branch", "own gradient"])
@pytest.mark.parametrize("runner", [False, True])
def test_a_mean_that_the_forward_writes(how, runner):
    made = [model.train() for model in make_models(lambda: Averaging(how), 3)]
    array = dnnsuite.fuse(made)
    optimizer = dnnsuite.optim.SGD(array.parameters(), lr=0.1)
    data = torch.randn(STEPS, 3, 5, 4)
    if runner:
        loss = lambda part, x: part(x).square().mean((1, 2))  # noqa: E731
        with dnnsuite.StepRunner(array, optimizer, loss, threads=1, width=2) as steps:
            for x in data:
                steps.step(x)
    else:
        for x in data:
            optimizer.zero_grad()
            array(x).square().mean((1, 2)).sum().backward()
            optimizer.step()
    for index, model in enumerate(made):
        train_alone(model, data[:, index])
        for name, value in model.state_dict().items():
            torch.testing.assert_close(array.state_dict()[name][index], value, rtol=1e-4, atol=1e-5, msg=name)


class Late(torch.nn.Module):
    """Makes a mask of the size of its input when it first sees one."""

    def __init__(self, persistent=True):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.register_buffer("mask", None, persistent=persistent)
        self.register_buffer("other", torch.zeros(1, 1), persistent=persistent)

    def forward(self, x):
        n = x.size(0)
        if self.mask is None or self.mask.size(0) != n:
            self.mask = torch.ones(n, n).tril()
        if self.other.size(0) != n:
            self.other = torch.ones(n, n).triu()
        return self.mask @ self.inner(x) + self.other @ x


def test_a_buffer_made_in_the_forward():
    made = make_models(Late, 3)
    array = dnnsuite.fuse(made)
    for n in (5, 3):
        x = torch.randn(3, n, 4)
        output = array(x)
        for index, model in enumerate(made):
            assert_near(output[index], model(x[index]))
        assert array.state_dict()["mask"].shape == (3, n, n)
    assert array[1].mask.shape == (3, 3)


def test_a_step_runner_says_what_it_cannot_keep():
    x = torch.randn(3, 5, 4)
    loss = lambda part, x: part(x).mean((1, 2))  # noqa: E731
    array = dnnsuite.fuse(make_models(Late, 3))
    optimizer = dnnsuite.optim.SGD(array.parameters(), lr=0.1)
    with (
        pytest.raises(InvalidArgument, match=r"buffer (mask|other) another shape.*persistent=False"),
        dnnsuite.StepRunner(array, optimizer, loss, threads=1) as runner,
    ):
        runner.step(x).losses()
    array(x)
    with dnnsuite.StepRunner(array, optimizer, loss, threads=1) as runner:
        runner.step(x).losses()
    cached = dnnsuite.fuse(make_models(lambda: Late(persistent=False), 3))
    optimizer = dnnsuite.optim.SGD(cached.parameters(), lr=0.1)
    with dnnsuite.StepRunner(cached, optimizer, loss, threads=1) as runner:
        runner.step(x).losses()


class Decaying(torch.nn.Module):
    """Goes through its own parameters, those of a part, and those of a list of parts."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.several = torch.nn.ModuleList([torch.nn.Linear(4, 4)])
        self.chain = torch.nn.Sequential(torch.nn.Linear(4, 4))
        self.register_buffer("shift", torch.randn(4))

    def forward(self, x):
        x = x.to(next(self.parameters()).dtype)
        total = sum((p**2).sum() for p in self.parameters()) + sum(p.numel() for p in self.parameters())
        for part in (self.inner, self.several, self.chain):
            total = total + sum(p.abs().sum() for name, p in part.named_parameters())
        return self.chain(self.several[0](self.inner(x))) * total + sum(b.sum() for b in self.buffers())


def test_code_that_goes_through_its_parameters_sees_one_models():
    made = make_models(Decaying, 3)
    array = dnnsuite.fuse(made)
    x = torch.randn(3, 5, 4)
    output = array(x)
    for index, model in enumerate(made):
        assert_near(output[index], model(x[index]))
    assert all(p.size(0) == 3 for p in array.parameters())


@pytest.mark.parametrize("start", [torch.zeros(0), torch.zeros(1), torch.tensor(0.0)], ids=["none", "one", "scalar"])
def test_a_buffer_that_a_forward_resizes_is_refused_until_it_has_its_size(start):
    """In an array the memory after it is that of other models."""

    class Resized(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(4, 4)
            self.register_buffer("mean", start.clone())

        def forward(self, x):
            h = self.inner(x)
            if self.mean.shape != (4,):
                self.mean.resize_(4).zero_()
            self.mean.lerp_(h.detach().mean(0), 0.5)
            return h + self.mean

    models, x = make_models(Resized, 2), torch.randn(2, 5, 4)
    with pytest.raises(InvalidArgument, match=r"gives its buffer mean another size in place, \[4\] for .*: call each"):
        dnnsuite.fuse(models)(x)
    for model, batch in zip(models, x, strict=True):
        model(batch)
    array = dnnsuite.fuse(models)
    for _ in range(2):
        output = array(x)
        torch.testing.assert_close(output, torch.stack([m(one) for m, one in zip(models, x, strict=True)]))


class SharesStatistics(torch.nn.Module):
    """Two layers of batch norm with one mean and one variance."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.BatchNorm1d(4), torch.nn.BatchNorm1d(4)
        self.second.running_mean, self.second.running_var = self.first.running_mean, self.first.running_var

    def forward(self, x):
        return self.second(self.first(x))


def test_a_buffer_of_two_layers_is_one_buffer_of_the_array():
    models = make_models(SharesStatistics, 3)
    array = dnnsuite.fuse(models)
    x = torch.randn(3, 6, 4)

    def check(array, models):
        for _ in range(2):
            torch.testing.assert_close(array(x), torch.stack([one(own) for one, own in zip(models, x, strict=True)]))
        for name, buffer in array.named_buffers(remove_duplicate=False):
            if name.startswith(("first", "second")):
                torch.testing.assert_close(buffer, torch.stack([model.get_buffer(name) for model in models]))
        assert array.second.running_var is array.first.running_var

    check(array, models)
    check(copy.deepcopy(array), copy.deepcopy(models))
    array.replace(1, make_models(SharesStatistics, 1)[0])
    models[1] = make_models(SharesStatistics, 1)[0]
    check(array, models)
    single = dnnsuite.unfuse(array)[0]
    assert single.second.running_var is single.first.running_var
