# SPDX-License-Identifier: MIT
"""Which thread runs a runner's steps."""

import threading

import pytest
import torch

import dnnsuite
from dnnsuite._step.dispatch import Dispatch
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
