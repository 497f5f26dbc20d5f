# SPDX-License-Identifier: MIT
"""A later runner of equal models, in the same process, against separate models in float64."""

import pytest
import torch
import torch.nn.functional as F

import dnnsuite
from dnnsuite import StepRunner, nn, optim

B, STEPS = 3, 5
LR = [0.05, 0.02, 0.08]


def doubled(x):
    return x * 2


def tripled(x):
    return x * 3


class Net(torch.nn.Module):
    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.a, self.norm, self.b = torch.nn.Linear(4, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 2)
        self.gain = 1.0

    def forward(self, x):
        return helper(self.b(torch.relu(self.norm(self.a(x))))) * self.gain


helper = doubled


class Trained:
    """A runner's losses, those of separate models, and the runner's mode after its first step."""

    def __init__(self, seed, *, gain=1.0, width=B, threads=1, momentum=0.9, smoothing=0.0):
        models = [Net(seed + index) for index in range(B)]
        for model in models:
            model.double().gain = gain
        data = torch.randn(STEPS, B, 6, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        labels = torch.randint(2, (STEPS, B, 6), generator=torch.Generator().manual_seed(seed))
        array = dnnsuite.fuse(models)
        optimizer = optim.SGD(array.parameters(), lr=LR, momentum=momentum)

        def losses(part, x, y):
            return nn.functional.cross_entropy(part(x), y, label_smoothing=smoothing)

        with StepRunner(array, optimizer, losses, width=width, threads=threads) as runner:
            found = []
            for x, y in zip(data, labels, strict=True):
                found.append(runner.step(x, y).losses().clone())
                self.mode = runner.mode if len(found) == 1 else self.mode
        self.found = torch.stack(found)
        self.expected = torch.stack(
            [self.separate(models[i], i, data[:, i], labels[:, i], momentum, smoothing) for i in range(B)], 1
        )

    @staticmethod
    def separate(model, index, data, labels, momentum, smoothing):
        own, losses = torch.optim.SGD(model.parameters(), lr=LR[index], momentum=momentum), []
        for x, y in zip(data, labels, strict=True):
            own.zero_grad()
            loss = F.cross_entropy(model(x), y, label_smoothing=smoothing)
            loss.backward()
            own.step()
            losses.append(loss.detach())
        return torch.stack(losses)

    def checked_mode(self):
        torch.testing.assert_close(self.found, self.expected, rtol=1e-9, atol=1e-11)
        return self.mode


@pytest.mark.parametrize(
    "options",
    [{"smoothing": 0.1}, {"smoothing": 0.11, "width": 1}, {"smoothing": 0.12, "width": 2, "threads": 2}],
)
def test_a_later_runner_of_equal_models_replays_its_first_step(options):
    assert Trained(0, **options).checked_mode() == "warming up"
    assert Trained(10, **options).checked_mode() == "captured"


@pytest.mark.parametrize(
    "other",
    [{"gain": 3.0}, {"momentum": 0.0}, {"smoothing": 0.25}, {"width": 1}],
    ids=lambda other: next(iter(other)),
)
def test_a_runner_of_others_records_for_itself(other):
    Trained(0, smoothing=0.0625)
    assert Trained(20, **{"smoothing": 0.0625, **other}).checked_mode() == "warming up"


def test_another_function_under_a_name_that_the_models_call_is_another_step(monkeypatch):
    Trained(0, smoothing=0.03125)
    monkeypatch.setitem(globals(), "helper", tripled)
    assert Trained(30, smoothing=0.03125).checked_mode() == "warming up"
