# SPDX-License-Identifier: MIT
"""A runner warms up for twenty steps at most: then `mode` has its reason, and the models' own results stay."""

import copy

import pytest
import torch

import dnnsuite
from dnnsuite import optim

B, STEPS = 3, 26


class Scheduled(torch.nn.Module):
    """Takes the temperature of each step from a list, as DINO's teacher does: Python looks at the counter."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)
        self.temperatures = [0.1 + 0.01 * step for step in range(STEPS)]
        self.step = 0

    def forward(self, x):
        outputs = self.layer(x) / self.temperatures[self.step]
        self.step += 1
        return outputs.square().mean()


@pytest.mark.parametrize("options", [{"threads": 1}, {"threads": 1, "width": 1}], ids=str)
def test_twenty_steps_of_warming_up_end_with_a_reason(options):
    models = [Scheduled().double() for _ in range(B)]
    array = dnnsuite.fuse(copy.deepcopy(models))
    batches = torch.randn(STEPS, B, 5, 4, dtype=torch.float64)
    alone = [torch.optim.SGD(model.parameters(), lr=0.01) for model in models]
    modes = []
    with dnnsuite.StepRunner(array, optim.SGD(array.parameters(), lr=0.01), lambda a, x: a(x), **options) as runner:
        for batch in batches:
            losses = runner.step(batch).losses()
            modes.append(runner.mode)
            for model, optimizer, x, loss in zip(models, alone, batch, losses, strict=True):
                optimizer.zero_grad()
                own = model(x)
                own.backward()
                optimizer.step()
                torch.testing.assert_close(loss, own.detach())
    assert modes.count("warming up") <= 20
    assert modes[-1] != "warming up"
    for index, model in enumerate(models):
        torch.testing.assert_close(array[index].state_dict(), model.state_dict())
        assert array[index].step == STEPS


class Routed(torch.nn.Module):
    """Chooses rows by values: the shape of what follows is each model's own."""

    def __init__(self):
        super().__init__()
        self.gate, self.layer = torch.nn.Linear(4, 1), torch.nn.Linear(4, 3)

    def forward(self, x):
        chosen = torch.nonzero(self.gate(x).squeeze(-1) > 0).squeeze(-1)
        return self.layer(x).square().mean() + self.layer(x[chosen]).sum() + self.gate(x).square().mean()


class Rounds(torch.nn.Module):
    """Repeats until values say stop, each model after rounds of its own."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        state, rounds = torch.zeros_like(x), 0
        while rounds < 30:
            before, rounds = state, rounds + 1
            state = 0.5 * torch.tanh(self.layer(x) + state)
            if (state - before).abs().max() < 1e-3:
                break
        return state.square().mean()


class Reversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -ctx.strength * gradient, None


class Adversarial(torch.nn.Module):
    """Reverses a gradient by a strength that the user sets before each step."""

    def __init__(self):
        super().__init__()
        self.features, self.domain, self.strength = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1), 0.0

    def forward(self, x):
        features = torch.tanh(self.features(x))
        return features.mean() + self.domain(Reversal.apply(features, self.strength)).square().mean()


def compared(make, steps, before=lambda model, step: None):
    """Train models by a runner and alone; return the modes after each step."""
    torch.manual_seed(0)
    models = [make().double() for _ in range(B)]
    array = dnnsuite.fuse(copy.deepcopy(models))
    batch = torch.randn(B, 6, 4, dtype=torch.float64)
    alone = [torch.optim.SGD(model.parameters(), lr=0.02) for model in models]
    modes = []
    optimizer = optim.SGD(array.parameters(), lr=0.02)
    with dnnsuite.StepRunner(array, optimizer, lambda a, x: a(x), threads=1) as runner:
        for step in range(steps):
            before(array, step)
            losses = runner.step(batch).losses()
            modes.append(runner.mode)
            for model, own, x, loss in zip(models, alone, batch, losses, strict=True):
                before(model, step)
                own.zero_grad()
                found = model(x)
                found.backward()
                own.step()
                torch.testing.assert_close(loss, found.detach())
    for index, model in enumerate(models):
        torch.testing.assert_close(array[index].state_dict(), model.state_dict())
    return modes


def test_a_shape_by_values_is_given_up_when_its_second_recording_says_the_same():
    modes = compared(Routed, 6)
    assert all(mode.startswith("eager: the shape of what aten.nonzero returns") for mode in modes[2:])


def test_models_that_go_different_ways_by_values_are_captured_one_by_one():
    modes = compared(Rounds, 30)
    assert "captured" in modes
    assert modes[-1] != "warming up"


def test_a_strength_on_a_schedule_is_followed_into_a_backward_pass():
    def set_strength(model, step):
        model.strength = 0.3 + 0.01 * step

    modes = compared(Adversarial, 24, set_strength)
    assert modes[-1] == "captured"
    assert modes.count("captured") > 8


def test_a_strength_that_the_model_itself_changes_is_each_models_own():
    class Counting(Adversarial):
        def forward(self, x):
            self.strength += 0.05
            return super().forward(x)

    modes = compared(Counting, 24)
    assert modes[-1] != "warming up"
