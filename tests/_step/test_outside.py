# SPDX-License-Identifier: MIT
import copy
import functools

import pytest
import torch

import dnnsuite
from dnnsuite import StepRunner, optim
from dnnsuite._step.capture import guards
from dnnsuite._step.outside import OutsideState
from dnnsuite.errors import InvalidArgument
from helpers import assert_near, make_models
from small_steps import make, squares

BATCH = torch.randn(2, 8, 6)


def outside_of(function):
    return OutsideState(guards.reach_of(function).readers)


def test_a_tensor_written_under_a_step_is_refused_unless_the_step_writes_it():
    tensor = torch.ones(2)
    seen = outside_of(lambda x: x * tensor)
    tensor.mul_(2)
    seen.check(False)
    tensor.mul_(2)
    with pytest.raises(InvalidArgument, match=r"a tensor \[2\] that the steps read.*synchronize"):
        seen.check(True)
    seen.check(True)
    tensor.mul_(2)
    seen.note_own()
    tensor.mul_(2)
    seen.check(True)


@pytest.mark.parametrize("capture", [True, False])
def test_a_step_as_written_sees_the_values_of_its_call(capture):
    array, optimizer = make(2)
    config = {"k": 1.0, "seen": []}

    def loss(part, x):
        config["seen"].append(x[0, 0, 0].item())  # not captured
        return squares(part, x) * config["k"]

    with StepRunner(array, optimizer, loss, threads=2, width=1, capture=capture) as runner:
        for step in range(8):
            taken = runner.step(BATCH)
            assert taken.left == 0
            config["k"] = 2.0 + step


def test_a_tensor_that_replays_read_is_not_written_under_them():
    array, optimizer = make(2)
    weight = torch.ones(())
    with StepRunner(array, optimizer, lambda part, x: squares(part, x) * weight, threads=2, width=1) as runner:
        while runner.mode != "captured":
            runner.step(BATCH).losses()
        runner.step(BATCH).losses()
        weight.fill_(2.0)  # after the step
        runner.step(BATCH)
        weight.fill_(3.0)
        with pytest.raises(InvalidArgument, match="written while steps"):
            runner.step(BATCH)
        runner.synchronize()
        weight.fill_(4.0)
        runner.step(BATCH).losses()


class Agent:
    """A network and its target, which the loss function finds in the agent."""

    def __init__(self, models):
        self.array = dnnsuite.fuse(models)
        self.target = copy.deepcopy(self.array).requires_grad_(False)
        self.optimizer = optim.Adam(self.array.parameters(), lr=0.01)

    def loss(self, array, x, y):
        return (array(x) - self.wanted(y)).square().mean((1, 2))

    def wanted(self, y):
        with torch.no_grad():
            return self.target(y)


def of_target(target, array, x, y):
    return (array(x) - target(y).detach()).square().mean((1, 2))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "loss_of",
    [
        lambda agent: agent.loss,
        lambda agent: functools.partial(of_target, agent.target),
        lambda agent: lambda array, x, y: of_target(agent.target, array, x, y),
    ],
    ids=["method", "partial", "closure"],
)
def test_a_target_network_in_an_array_of_its_own(loss_of, threads):
    """All models stay in one shard, as the target's have no others; it may be overwritten between steps."""

    def small():
        return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))

    models = make_models(small, 3, torch.float64)
    targets = copy.deepcopy(models)
    agent = Agent(models)
    optimizers = [torch.optim.Adam(model.parameters(), lr=0.01) for model in models]
    numbers = torch.Generator().manual_seed(0)
    with StepRunner(agent.array, agent.optimizer, loss_of(agent), threads=threads) as runner:
        for step in range(8):
            x, y = torch.randn(2, 3, 5, 4, generator=numbers, dtype=torch.float64)
            losses = runner.step(x, y).losses()
            for index, (model, target, optimizer) in enumerate(zip(models, targets, optimizers, strict=True)):
                optimizer.zero_grad()
                loss = (model(x[index]) - target(y[index]).detach()).square().mean()
                loss.backward()
                optimizer.step()
                assert_near(losses[index], loss.detach())
            if step % 3 == 2:
                agent.target.load_state_dict(agent.array.state_dict())
                for target, model in zip(targets, models, strict=True):
                    target.load_state_dict(model.state_dict())
        assert runner.width == 3


def test_narrow_shards_beside_a_target_network_are_refused():
    agent = Agent(make_models(lambda: torch.nn.Linear(4, 2), 2))
    with pytest.raises(InvalidArgument, match="width=1, but the loss function computes with another array, of Linear"):
        StepRunner(agent.array, agent.optimizer, agent.loss, width=1)
