# SPDX-License-Identifier: MIT
import itertools
import time

import pytest
import torch

import dnnsuite
from dnnsuite import _tune as tune
from dnnsuite._step.shard_widths import LoopTrial
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
