# SPDX-License-Identifier: MIT
import itertools
import time

import pytest
import torch

import dnnsuite
from dnnsuite import _tune as tune
from dnnsuite._step.shard_widths import LoopTrial
from dnnsuite.errors import InvalidArgument
from helpers import make_models


@pytest.fixture(autouse=True)
def table(tmp_path, monkeypatch):
    """A table of this test's own."""
    made = tune.TuningTable(tmp_path / "tune.json")
    monkeypatch.setattr(tune, "table", lambda: made)
    return made


def run(fused_s, loop_s, loops=True):
    trial, ways = LoopTrial("key", 1, 4), []
    while not trial.done:
        ways.append((trial.loop, trial.width))
        trial.add(loop_s if trial.loop else fused_s, 4.0, loops)
    return ways, trial


@pytest.mark.parametrize(("loop_s", "loop"), [(0.005, True), (0.02, False)])
def test_the_faster_way_is_taken_and_kept(loop_s, loop):
    ways, trial = run(0.01, loop_s)
    assert ways == [(False, 1)] * 3 + [(True, 4)] * 3
    assert (trial.loop, trial.width) == ((True, 4) if loop else (False, 1))
    assert bool(trial.why) == loop
    again = LoopTrial("key", 1, 4)
    assert (again.done, again.loop, again.width) == (True, loop, trial.width)


def test_heavy_models_stay_in_shards_of_their_own():
    assert run(9.0, 8.0)[0] == [(False, 1)] * 3 + [(True, 1)] * 3


def test_models_that_cannot_run_in_a_loop_are_not_timed_on():
    ways, trial = run(0.01, 0.001, loops=False)
    assert ways == [(False, 1)] * 3 + [(True, 4)]
    assert (trial.loop, trial.width) == (False, 1)


class Remembers(torch.nn.Module):
    """Its iterator and its list are each model's own, and no guard can compare them."""

    def __init__(self):
        super().__init__()
        self.a, self.scales, self.seen = torch.nn.Linear(4, 4), itertools.cycle([1.0, 0.5, 0.25]), []

    def forward(self, x):
        self.seen.append(next(self.scales))
        return self.a(x) * self.seen[-1] * (1 if len(self.seen) % 4 else 2)


@pytest.mark.parametrize("second_s", [0.002, 0.02, 0.2])
@pytest.mark.parametrize("capture", [False, True])
def test_trials_of_widths_and_loops_lose_nothing_of_python(capture, second_s, monkeypatch):
    """Whatever the clock says, and so whichever way runs a step."""
    clock = itertools.count(step=second_s)
    monkeypatch.setattr(time, "thread_time", lambda: next(clock))
    separate, xs = make_models(Remembers, 3), torch.randn(14, 3, 6, 4)
    array = dnnsuite.fuse(make_models(Remembers, 3))
    optimizer = dnnsuite.optim.SGD(array.parameters(), lr=0.1)
    theirs = [torch.optim.SGD(model.parameters(), lr=0.1) for model in separate]

    def loss(part, x):
        return part(x).square().flatten(1).mean(1)

    with dnnsuite.StepRunner(array, optimizer, loss, threads=1, capture=capture) as runner:
        for x in xs:
            losses = runner.step(x).losses()
            for model, own, one, optim in zip(separate, losses, x, theirs, strict=True):
                optim.zero_grad()
                expected = model(one).square().mean()
                expected.backward()
                optim.step()
                torch.testing.assert_close(own, expected.detach())
    for index, model in enumerate(separate):
        assert array[index].seen == model.seen


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
        if on_layer and helper is average:  # a layer of all models has one number
            with pytest.raises(InvalidArgument, match="other values of average in layer, a Linear"):
                train(runner)
        else:
            train(runner)


def test_what_a_layer_holds_is_a_model_s_own():
    model = Helped(count, True)
    array = dnnsuite.fuse([model, Helped(count, True)])
    array[0].layer.calls.append(1)
    assert (array[0].layer.calls, array[1].layer.calls, model.layer.calls) == ([], [], [])


class Gate(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.a(x) if x.sum() > 0 else self.b(x)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("width", [None, 1, 3])
def test_coverage_tells_of_the_shards_of_a_runner(width, threads):
    array = dnnsuite.fuse(make_models(Gate, 3))
    optimizer = dnnsuite.optim.SGD(array.parameters(), lr=0.1)
    loss = lambda part, x: part(x).square().mean((1, 2))  # noqa: E731
    with dnnsuite.StepRunner(array, optimizer, loss, width=width, threads=threads) as runner:
        for _ in range(20):
            runner.step(torch.randn(3, 2, 4)).losses()
        runner.synchronize()
    (cover,) = array.coverage()
    assert (cover.name, cover.layer, cover.how) == ("", "Gate", "per model")
    assert cover.reason
