# SPDX-License-Identifier: MIT
"""What code sets in a module reaches every shard and the array, whichever way a step runs and whoever has called it."""

import pytest
import torch

import dnnsuite
from dnnsuite.errors import InvalidArgument
from helpers import make_models


def average(module, x):
    module.average = 0.5 * module.average + x.detach().abs().mean().item()
    return x * module.average


def recall(module, x):
    x = x if module.last is None else x + module.last
    module.last = x.detach().tanh()
    return x


def count(module, x):
    module.calls.append(1)
    return x * (1 + len(module.calls) % 3)


class Helped(torch.nn.Module):
    """A function that is no method writes into it, or into a layer of torch's that is a part of it."""

    def __init__(self, helper, on_layer):
        super().__init__()
        self.layer, self.helper, self.on_layer = torch.nn.Linear(4, 4), helper, on_layer
        target = self.layer if on_layer else self
        target.average, target.last, target.calls = 0.0, None, []

    def forward(self, x):
        return self.helper(self.layer if self.on_layer else self, self.layer(x))


@pytest.mark.parametrize("width", [None, 1, 3])
@pytest.mark.parametrize("on_layer", [False, True])
@pytest.mark.parametrize("helper", [average, recall, count])
def test_what_a_function_sets_in_a_module_is_there_in_the_next_step(helper, on_layer, width):
    separate, xs = make_models(lambda: Helped(helper, on_layer), 3), torch.randn(16, 3, 6, 4)
    array = dnnsuite.fuse(make_models(lambda: Helped(helper, on_layer), 3))
    optimizer = dnnsuite.optim.SGD(array.parameters(), lr=0.1)
    theirs = [torch.optim.SGD(model.parameters(), lr=0.1) for model in separate]

    def loss(part, x):
        return part(x).square().flatten(1).mean(1)

    def train(runner):
        for x in xs:
            losses = runner.step(x).losses()
            for model, own, one, optim in zip(separate, losses, x, theirs, strict=True):
                optim.zero_grad()
                expected = model(one).square().mean()
                expected.backward()
                optim.step()
                torch.testing.assert_close(own, expected.detach())

    with dnnsuite.StepRunner(array, optimizer, loss, threads=1, width=width) as runner:
        if on_layer and helper is average and width == 1:  # the layers of shards differ, and the array's has one number
            with pytest.raises(InvalidArgument, match="other values of average in layer, a Linear"):
                train(runner)
        else:
            train(runner)


def test_what_a_layer_holds_is_a_model_s_own():
    model = Helped(count, True)
    array = dnnsuite.fuse([model, Helped(count, True)])
    array[0].layer.calls.append(1)
    assert (array[0].layer.calls, array[1].layer.calls, model.layer.calls) == ([], [], [])


class Rotates(torch.nn.Module):
    """Each step puts another list in the place of the last one."""

    def __init__(self):
        super().__init__()
        self.layer, self.order = torch.nn.Linear(4, 4), list(range(4))

    def forward(self, x):
        self.order = self.order[1:] + self.order[:1]
        return self.layer(x)[:, self.order]


@pytest.mark.parametrize("threads", [1, 2])
def test_an_array_has_the_list_that_a_replay_leaves(threads):
    array, order = dnnsuite.fuse(make_models(Rotates, 3)), list(range(4))
    optimizer = dnnsuite.optim.SGD(array.parameters(), lr=0.1)
    with dnnsuite.StepRunner(array, optimizer, lambda a, x: a(x).flatten(1).mean(1), threads=threads) as runner:
        for _ in range(30):
            runner.step(torch.randn(3, 6, 4))
            order = order[1:] + order[:1]
            assert array.order == order
    assert [array[index].order for index in range(3)] == [order] * 3


@pytest.mark.parametrize("threads", [1, 2])
def test_a_list_that_came_from_a_step_may_be_edited(threads):
    separate, xs = make_models(Rotates, 3), torch.randn(24, 3, 6, 4)
    array = dnnsuite.fuse(make_models(Rotates, 3))
    optimizer = dnnsuite.optim.SGD(array.parameters(), lr=0.0)
    with dnnsuite.StepRunner(array, optimizer, lambda a, x: a(x)[:, :, 0].mean(1), threads=threads) as runner:
        for step, x in enumerate(xs):
            if step in (4, 15, 20):
                for order in (array.order, *(model.order for model in separate)):
                    order[0], order[2] = order[2], order[0]
            losses = runner.step(x).losses()
            for model, own, one in zip(separate, losses, x, strict=True):
                torch.testing.assert_close(own, model(one)[:, 0].mean().detach())


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("calls", ["hsshsssshssss", "sssssssssssshshs"])
@pytest.mark.parametrize("helper", [average, recall, count])
def test_calls_by_hand_between_steps_and_steps_see_what_the_others_left(helper, calls, threads):
    separate = make_models(lambda: Helped(helper, False), 3)
    array = dnnsuite.fuse(make_models(lambda: Helped(helper, False), 3))
    optimizer = dnnsuite.optim.SGD(array.parameters(), lr=0.0)
    with dnnsuite.StepRunner(array, optimizer, lambda a, x: a(x).flatten(1).mean(1), threads=threads) as runner:
        for call in calls:
            x = torch.randn(3, 6, 4)
            losses = runner.step(x).losses() if call == "s" else array(x).flatten(1).mean(1)
            for model, own, one in zip(separate, losses, x, strict=True):
                torch.testing.assert_close(torch.as_tensor(own).detach(), model(one).mean().detach())


class Best(torch.nn.Module):
    """Keeps the least value so far, and counts the calls without a better one."""

    def __init__(self):
        super().__init__()
        self.layer, self.best, self.since = torch.nn.Linear(4, 4), float("inf"), 0

    def forward(self, x):
        x = self.layer(x)
        value = x.detach().square().mean().item()
        self.best, self.since = (value, 0) if value < self.best else (self.best, self.since + 1)
        return x * (1 + self.since / 8)


@pytest.mark.parametrize("threads", [1, 2])
def test_values_of_tensors_that_parts_keep_are_each_model_s(threads):
    def make():
        return torch.nn.Sequential(Best(), Best())

    separate, xs = make_models(make, 3), torch.randn(16, 3, 6, 4)
    array = dnnsuite.fuse(make_models(make, 3))
    optimizer = dnnsuite.optim.SGD(array.parameters(), lr=0.0)
    with dnnsuite.StepRunner(array, optimizer, lambda a, x: a(x).flatten(1).mean(1), threads=threads) as runner:
        for x in xs:
            losses = runner.step(x).losses()
            for model, own, one in zip(separate, losses, x, strict=True):
                torch.testing.assert_close(own, model(one).mean().detach())
    for index, model in enumerate(separate):
        assert [part.since for part in array[index]] == [part.since for part in model]
