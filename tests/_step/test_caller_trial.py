# SPDX-License-Identifier: MIT
"""Choice between a runner's threads and the thread of its caller."""

import pytest
import torch

import dnnsuite
from dnnsuite._step.dispatch import CallerTrial


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def ways(threads_s, caller_s, steps=100, warm_up=0):
    """Run steps that take so long, and return the trial and where each step ran."""
    clock, waited = Clock(), []
    trial = CallerTrial(clock)
    ran = []
    for number in range(steps):
        captured = number >= warm_up
        ran.append(trial.follow(lambda: waited.append(len(ran)), captured))
        clock.now += (caller_s if ran[-1] else threads_s) if captured else 1.0
    assert waited[0] == warm_up  # all steps before a block have ended
    assert len(waited) >= 2
    return trial, ran


@pytest.mark.parametrize(("threads_ms", "caller_ms", "here"), [(0.4, 0.3, True), (0.3, 0.31, False)])
@pytest.mark.parametrize("warm_up", [0, 5])
def test_the_faster_way_is_taken(threads_ms, caller_ms, here, warm_up):
    _, ran = ways(threads_ms / 1e3, caller_ms / 1e3, warm_up=warm_up)
    assert set(ran[:60]) == {False, True}
    assert set(ran[60:]) == {here}


def test_long_steps_stay_with_the_threads_and_are_not_tried():
    assert True not in ways(0.1, 0.01)[1]


def test_steps_that_become_long_are_tried_anew():
    trial, _ = ways(0.0004, 0.0003)
    for seconds in (0.1, 0.1, 0.0005, 0.1, 0.1):
        trial.took(seconds)
    assert trial.here
    trial.took(0.1)
    assert not trial.here


def test_a_trial_begins_anew_with_the_threads():
    trial, ran = ways(0.0004, 0.0003)
    assert ran[-1]
    trial.begin()
    assert not trial.follow(lambda: None, True)


def test_results_are_the_same_wherever_a_step_runs():
    """Some hundred steps of a small array, tried in both threads, against separate models."""
    torch.manual_seed(0)
    models = [torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)) for _ in range(3)]
    array = dnnsuite.fuse(models)
    rates = [0.1, 0.05, 0.01]
    loss = torch.nn.functional.mse_loss
    runner = dnnsuite.StepRunner(
        array,
        dnnsuite.optim.SGD(array.parameters(), lr=rates),
        lambda array, x, y: dnnsuite.nn.functional.mse_loss(array(x), y),
        threads=2,
    )
    optimizers = [torch.optim.SGD(m.parameters(), lr=rate) for m, rate in zip(models, rates, strict=True)]
    for _ in range(120):
        x, y = torch.randn(8, 5), torch.randn(8, 1)
        got = runner.step(dnnsuite.stack(x, 3), dnnsuite.stack(y, 3)).losses()
        want = []
        for model, optimizer in zip(models, optimizers, strict=True):
            optimizer.zero_grad()
            value = loss(model(x), y)
            value.backward()
            optimizer.step()
            want.append(value.detach())
        torch.testing.assert_close(got, torch.stack(want), rtol=1e-4, atol=1e-5)
    runner.close()
