# SPDX-License-Identifier: MIT
"""Ctrl-C in a step: it is raised, all models have taken the step, and the next is right."""

import copy
import math
import signal

import pytest
import torch

import dnnsuite
from dnnsuite import optim


class Net(torch.nn.Module):
    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.a, self.norm, self.b = torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 2)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.b(self.norm(self.a(x)).relu())


class Loss:
    """Loss function that may be interrupted: by signals, or by an exception, for the model of which the batch says
    so."""

    def __init__(self):
        self.signals, self.error = 0, None

    def __call__(self, array, x, y, now):
        losses = (array(x) - y).square().flatten(1).mean(1)
        if now.any():
            for _ in range(self.signals):
                signal.raise_signal(signal.SIGINT)
            if self.error is not None:
                raise self.error
        return losses


def batch(number):
    torch.manual_seed(100 + number)
    return torch.randn(5, 4, dtype=torch.float64), torch.randn(5, 2, dtype=torch.float64)


def batches(number, now=False):
    return *(dnnsuite.stack(part, 3) for part in batch(number)), torch.tensor([now, False, False])


def train(models, optimizers, number):
    x, y = batch(number)
    for model, optimizer in zip(models, optimizers, strict=True):
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        optimizer.step()


def assert_equal(array, models):
    for mine, model in zip(array, models, strict=True):
        torch.testing.assert_close(mine.state_dict(), model.state_dict())
        assert mine.calls == model.calls


@pytest.fixture
def trained():
    models = [Net(seed).double() for seed in range(3)]
    array = dnnsuite.fuse(copy.deepcopy(models))
    own = [torch.optim.Adam(model.parameters(), lr=0.01) for model in models]
    return models, own, array, optim.Adam(array.parameters(), lr=0.01)


def interrupted_step(runner, number):
    with pytest.raises(KeyboardInterrupt):
        runner.step(*batches(number, now=True))


@pytest.mark.parametrize("options", [{}, {"width": 1}, {"threads": 2, "width": 2}, {"capture": False}], ids=str)
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_signal_is_raised_when_all_models_have_taken_the_step(trained, options, at):
    models, own, array, optimizer = trained
    loss, before = Loss(), math.exp
    with dnnsuite.StepRunner(array, optimizer, loss, **{"threads": 1, **options}) as runner:
        for number in range(6):
            if number == at:
                loss.signals = 1
                interrupted_step(runner, number)
            else:
                runner.step(*batches(number)).losses()
            train(models, own, number)
            assert_equal(array, models)
            assert math.exp is before
            assert torch.is_grad_enabled()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, ValueError])
@pytest.mark.parametrize("at", [0, 1])
def test_an_error_in_one_shard_is_raised_when_the_others_have_taken_the_step(trained, kind, at):
    models, own, array, optimizer = trained
    loss = Loss()
    with dnnsuite.StepRunner(array, optimizer, loss, threads=1, width=1) as runner:
        for number in range(6):
            if number != at:
                runner.step(*batches(number)).losses()
                train(models, own, number)
                continue
            loss.error = kind()
            with pytest.raises(kind):
                runner.step(*batches(number, now=True)).losses()
            models[0].train()(batch(number)[0])  # the first has run its forward, and the others have taken the step
            train(models[1:], own[1:], number)
            assert_equal(array, models)
        assert_equal(array, models)


def test_a_second_signal_is_raised_at_once(trained):
    *_, array, optimizer = trained
    loss, before = Loss(), math.exp
    with dnnsuite.StepRunner(array, optimizer, loss, threads=1) as runner:
        parameters = [parameter.detach().clone() for parameter in array.parameters()]
        loss.signals = 2
        interrupted_step(runner, 0)
        assert all(map(torch.equal, array.parameters(), parameters))
        assert math.exp is before
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_users_handler_stays(trained):
    *_, array, optimizer = trained
    loss, seen = Loss(), []
    before = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:
        with dnnsuite.StepRunner(array, optimizer, loss, threads=1, capture=False) as runner:
            loss.signals = 2
            runner.step(*batches(0, now=True))
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [signal.SIGINT] * 2
