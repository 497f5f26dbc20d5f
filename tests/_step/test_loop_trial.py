# SPDX-License-Identifier: MIT
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
