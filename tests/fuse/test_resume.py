# SPDX-License-Identifier: MIT
"""An array with all that trains it, edited, copied, saved and resumed: to the bit as if nothing had happened."""

import copy
import io

import pytest
import torch

import dnnsuite
from dnnsuite import nn, optim
from helpers import make_models

B = 4


class Net(torch.nn.Module):
    """Statistics, dropout, and numbers drawn by its own code."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 8)
        self.norm = torch.nn.BatchNorm1d(8)
        self.drop = torch.nn.Dropout(0.3)
        self.last = torch.nn.Linear(8, 3)

    def forward(self, x):
        return self.last(self.drop(torch.relu(self.norm(self.first(x))) + torch.rand(8)))


def loss(array, x, y):
    return nn.functional.cross_entropy(array(x), y)


def trained(steps=3):
    """An array, its optimizer, schedule and scaler, with other values for each model, after some steps."""
    array = dnnsuite.fuse(make_models(Net, B), seeds=range(B))
    optimizer = optim.Adam(array.parameters(), lr=[0.01, 0.02, 0.03, 0.04], amsgrad=True)
    parts = [
        optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=[2, 3, 4, 5]),
        optim.lr_scheduler.StepLR(optimizer, [1, 2, 3, 4], 0.9),
    ]
    schedule = optim.lr_scheduler.SequentialLR(optimizer, parts, [[3, 4, 3, 5]])
    scaler = optim.GradScaler("cpu", B=B, init_scale=[8.0, 4.0, 2.0, 1.0], growth_interval=2)
    state = array, optimizer, schedule, scaler
    if steps:
        train(state, range(steps))
    return state


def batch(step, slots):
    generator = torch.Generator().manual_seed(step)
    x, y = torch.randn(B, 6, 4, generator=generator), torch.randint(3, (B, 6), generator=generator)
    return x[slots], y[slots]


def train(state, steps, slots=tuple(range(B)), runner=None):
    array, optimizer, schedule, scaler = state
    losses = []
    for step in steps:
        data = batch(step, list(slots))
        if runner is not None:
            losses.append(runner.step(*data).losses().clone())
        else:
            optimizer.zero_grad()
            values = loss(array, *data)
            scaler.scale(values).sum().backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(values.detach())
        schedule.step()
    return torch.stack(losses)


@pytest.mark.parametrize("by_runner", [False, True])
def test_models_that_leave_change_nothing_for_the_others(by_runner):
    state, reference = trained(), trained()
    runner = dnnsuite.StepRunner(state[0], state[1], loss, scaler=state[3], threads=1) if by_runner else None
    first = train(state, range(3, 7), runner=runner)
    if runner is not None:
        runner.synchronize()
    state[0].drop([1, 3], *state[1:])
    second = train(state, range(7, 12), (0, 2), runner)
    if runner is not None:
        runner.close()
    expected = train(reference, range(3, 12))
    assert torch.equal(first, expected[:4])
    assert torch.equal(second, expected[4:, [0, 2]])
    for name, value in state[0].state_dict().items():
        assert torch.equal(value, reference[0].state_dict()[name][[0, 2]]), name


def test_resumed_from_a_safe_file():
    state = trained()
    file = io.BytesIO()
    torch.save({"streams": nn.get_rng_state(state[0]), "parts": [part.state_dict() for part in state]}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    again = trained(steps=0)
    for part, own in zip(again, saved["parts"], strict=True):
        part.load_state_dict(own)
    nn.set_rng_state(again[0], saved["streams"])
    assert torch.equal(train(again, range(3, 8)), train(state, range(3, 8)))


def test_objects_through_a_file():
    state = trained()
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    again = torch.load(file, weights_only=False)
    assert torch.equal(train(again, range(3, 8)), train(state, range(3, 8)))


def test_a_copy_is_apart_from_what_is_dropped():
    state = trained()
    copied = copy.deepcopy(state)
    state[0].drop(0, *state[1:])
    assert torch.equal(train(state, range(3, 8), (1, 2, 3)), train(copied, range(3, 8))[:, 1:])


def test_a_model_may_join_what_was_resumed():
    state = trained()
    again = trained(steps=0)
    for part, own in zip(again, copy.deepcopy([part.state_dict() for part in state]), strict=True):
        part.load_state_dict(own)
    young = make_models(Net, 1)[0]
    fresh = {"lr": 0.05, "schedulers": [{"total_iters": 2}, {"step_size": 3}], "milestones": [2], "init_scale": 2.0}
    outcomes = []
    for one in (state, again):
        one[0].append(copy.deepcopy(young), *one[1:], **fresh)
        nn.seed(one[0], range(B + 1))
        outcomes.append(train(one, range(3, 8), (0, 1, 2, 3, 0)))
    assert torch.equal(*outcomes)
