# SPDX-License-Identifier: MIT
"""Which thread runs a runner's steps."""

import threading

import pytest
import torch

import dnnsuite
from dnnsuite._step.choices import Dispatch
from dnnsuite._step.threads import SubmittedStep


def dispatch_of(count, choose=True):
    """Two shards, and a list of the threads in which they run."""
    ran = []

    def run(index, batch, asked):
        ran.append(threading.current_thread())
        return torch.zeros(1)

    dispatch = Dispatch(count, 3, choose)
    dispatch.threads.deal(2, run)
    dispatch.start(4)
    return dispatch, ran


def a_step(dispatch):
    return SubmittedStep(dispatch.threads.wait, (), None, 2)


@pytest.mark.parametrize(("count", "mine"), [(0, True), (1, True), (2, False)])
def test_steps_run_in_the_threads_if_there_are_several(count, mine):
    dispatch, ran = dispatch_of(count)
    step = a_step(dispatch)
    dispatch.submit(step, True)
    assert step.losses().tolist() == [0, 0]
    assert {thread is threading.current_thread() for thread in ran} == {mine}
    assert dispatch.later is not mine
    dispatch.run_alone(a_step(dispatch))
    assert ran[-2:] == [threading.current_thread()] * 2
    dispatch.close()


def test_short_steps_are_tried_in_the_callers_thread_but_where_models_part():
    dispatch, ran = dispatch_of(2)
    heres = set()
    for _ in range(100):
        dispatch.choose(dispatch.threads.settle, True, False)
        heres.add(dispatch.here)
        dispatch.submit(a_step(dispatch), True)
    assert heres == {False, True}
    for _ in range(100):
        dispatch.choose(dispatch.threads.settle, True, True)
        assert not dispatch.here
    dispatch.submit(a_step(dispatch), True)
    dispatch.threads.settle()
    assert threading.current_thread() not in ran[-2:]
    dispatch.close()


def test_nothing_is_tried_unless_asked_for():
    dispatch, _ = dispatch_of(2, choose=False)
    for _ in range(100):
        dispatch.choose(dispatch.threads.settle, True, False)
        assert not dispatch.here
        dispatch.submit(a_step(dispatch), True)
    dispatch.close()


class Clock:
    """Seconds that pass while a step runs: so many in the threads, and in the caller's thread."""

    def __init__(self, threads_s, caller_s):
        self.now, self.threads_s, self.caller_s = 0.0, threads_s, caller_s

    def __call__(self):
        return self.now


def ways(clock, steps=100, warm_up=0):
    """Take steps, and return for each whether it ran in the caller's thread, and the steps before which one waited."""
    waited, heres = [], []

    def run(index, batch, asked):
        clock.now += clock.caller_s if dispatch.here else 0.0
        return torch.zeros(1)

    def settle():
        waited.append(len(heres))
        dispatch.threads.settle()

    dispatch = Dispatch(2, 3, True, clock)
    dispatch.threads.deal(1, run)
    dispatch.start(1)
    for number in range(steps):
        dispatch.choose(settle, number >= warm_up, False)
        heres.append(dispatch.here)
        clock.now += 1.0 if number < warm_up else 0.0 if dispatch.here else clock.threads_s
        dispatch.submit(SubmittedStep(dispatch.threads.wait, (), None, 1), number >= warm_up)
    dispatch.close()
    return heres, waited


@pytest.mark.parametrize(("threads_s", "caller_s", "here"), [(4e-4, 3e-4, True), (3e-4, 3.1e-4, False)])
@pytest.mark.parametrize("warm_up", [0, 5])
def test_the_faster_way_is_taken(threads_s, caller_s, here, warm_up):
    heres, waited = ways(Clock(threads_s, caller_s), warm_up=warm_up)
    assert set(heres[:60]) == {False, True}
    assert set(heres[60:]) == {here}
    assert waited[0] == warm_up  # all steps before a block have ended


def test_long_steps_stay_with_the_threads_and_are_not_tried():
    assert True not in ways(Clock(0.1, 0.01))[0]


def test_steps_that_become_long_are_tried_anew():
    class Longer(Clock):
        def __call__(self):
            if self.now > 0.05:
                self.threads_s = self.caller_s = 0.1
            return self.now

    heres, _ = ways(Longer(4e-4, 3e-4), steps=300)
    last = max(number for number, here in enumerate(heres) if here)
    assert heres[last - 2 : last + 1] == [True] * 3
    assert 100 < last < 200


class Settles(torch.nn.Module):
    """Goes on until its numbers stay the same, as far as the models of an array differ in that."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)

    def forward(self, x):
        h = torch.tanh(self.inner(x))
        for _ in range(3):
            after = torch.tanh(self.inner(h))
            if (after - h).abs().max().item() < 0.3:
                break
            h = after
        return self.outer(h)


def test_models_that_begin_to_go_different_ways_get_a_shard_each():
    torch.manual_seed(0)
    models = [Settles() for _ in range(3)]
    array = dnnsuite.fuse(models)
    optimizer = dnnsuite.optim.SGD(array.parameters(), lr=1e-3)
    runner = dnnsuite.StepRunner(array, optimizer, lambda array, x: array(x).square().mean((1, 2)), threads=2)
    optimizers = [torch.optim.SGD(model.parameters(), lr=1e-3) for model in models]
    for number in range(150):  # small inputs, so that all stop at once, until short steps were tried in both threads
        x = torch.randn(8, 4) * (1e-3 if number < 110 else 3)
        got = runner.step(dnnsuite.stack(x, 3)).losses()
        for model, one, loss in zip(models, optimizers, got, strict=True):
            one.zero_grad()
            want = model(x).square().mean()
            want.backward()
            one.step()
            torch.testing.assert_close(loss, want.detach(), rtol=1e-4, atol=1e-6)
    assert runner.width == 1
    runner.close()


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
