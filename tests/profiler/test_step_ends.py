# SPDX-License-Identifier: MIT
"""Ends of steps: an optimizer's, or backward's where there is none."""

import threading

import pytest
import torch

from dnnsuite.profiler._step_ends import StepEnds


@pytest.fixture
def attached(monkeypatch):
    """Ends that a script meets: torch is watched, and left as it was afterwards."""
    from torch.optim import Optimizer

    monkeypatch.setattr(torch.autograd, "backward", torch.autograd.backward)
    for name in ("__init__", "profile_hook_step"):
        monkeypatch.setattr(Optimizer, name, Optimizer.__dict__[name])

    def make(on="auto"):
        seen = []
        ends = StepEnds(seen.append, on)
        ends.attach_backward()
        ends.attach_optimizers()
        return ends, seen

    return make


def backward():
    torch.ones(2, requires_grad=True).sum().backward()


def test_without_an_optimizer_the_second_backward_settles_it(attached):
    ends, seen = attached()
    backward()
    assert (ends.kind, seen) == ("auto", [])
    backward()
    backward()
    assert [(end.kind, end.device) for end in seen] == [("backward", "cpu")] * 2
    torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    ends.optimizer_stepped(None)
    assert len(seen) == 2


class Own(torch.optim.Optimizer):  # one that torch has not wrapped before
    def __init__(self, parameters):
        super().__init__(parameters, {})

    def step(self, closure=None):
        pass


def test_gradients_that_are_accumulated_are_no_steps(attached):
    ends, seen = attached()
    optimizer = Own([torch.nn.Parameter(torch.ones(1))])
    for _ in range(8):
        backward()
    optimizer.step()
    backward()
    assert [end.kind for end in seen] == ["optimizer"]
    assert seen[0].loop is optimizer
    for _ in range(80):
        backward()
    assert ends.kind == "optimizer"


def test_an_optimizer_that_never_steps_is_not_waited_for_for_ever(attached):
    _, seen = attached()
    Own([torch.nn.Parameter(torch.ones(1))])
    for _ in range(65):
        backward()
    assert [end.kind for end in seen] == ["backward"] * 2


def test_asked_for_backward_is_taken_at_once_and_only_the_outermost(attached):
    _, seen = attached("backward")

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return x.clone()

        @staticmethod
        def backward(context, gradient):
            with torch.enable_grad():
                backward()  # as a checkpoint does
            return gradient

    Twice.apply(torch.ones(2, requires_grad=True)).sum().backward()
    assert len(seen) == 1
    thread = threading.Thread(target=backward)
    thread.start()
    thread.join()
    assert seen[1].loop is thread
