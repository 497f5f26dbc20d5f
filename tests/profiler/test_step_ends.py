# SPDX-License-Identifier: MIT
"""Ends of steps: an optimizer's, or backward's where there is none."""

import threading
import warnings

import pytest
import torch

from dnnsuite.profiler._step_ends import StepEnds


@pytest.fixture
def attached(monkeypatch):
    """Ends that a script meets: torch is watched, and left as it was afterwards."""
    from torch.optim import Optimizer

    for name in ("backward", "grad"):
        monkeypatch.setattr(torch.autograd, name, getattr(torch.autograd, name))
    for name in ("__init__", "profile_hook_step"):
        monkeypatch.setattr(Optimizer, name, Optimizer.__dict__[name])

    made = []

    def make(on="auto"):
        seen = []
        ends = StepEnds(seen.append, on)
        ends.attach_backward()
        ends.attach_optimizers()
        ends.attach_modules()
        made.append(ends)
        return ends, seen

    with warnings.catch_warnings():
        yield make
    for ends in made:
        ends.leave()


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


def test_a_loop_without_gradients_is_one_of_a_modules_calls(attached):
    ends, seen = attached()
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    other = torch.nn.Linear(2, 2)
    with torch.no_grad():
        for _ in range(10):
            net(torch.ones(1, 2))
    assert [(end.kind, end.device, end.before) for end in seen] == [("forward", "cpu", 7)] * 3
    assert {id(end.loop) for end in seen} == {id(net)}
    assert "one call of Sequential" in ends.remark
    other(torch.ones(1, 2))
    assert seen[-1].loop is other  # a loop of its own: the first is observed
    backward()
    backward()  # an evaluation was before the training: that says more
    assert seen[-1].kind == "backward"
    before = len(seen)
    net(torch.ones(1, 2))
    assert len(seen) == before


def test_gradients_by_autograds_grad_end_steps_but_not_those_of_a_larger_one(attached):
    ends, seen = attached()
    x = torch.ones(2, requires_grad=True)
    for _ in range(9):
        torch.autograd.grad((x * x).sum(), x, create_graph=True)  # a part of a step
        torch.autograd.grad((x * x).sum(), x)
    assert [end.kind for end in seen] == ["gradient"] * 2
    assert "torch.autograd.grad" in ends.remark


def test_of_steps_inside_of_each_other_the_outer_one_counts(attached):
    _, seen = attached()

    class Outer(torch.optim.Optimizer):
        def __init__(self, inner):
            super().__init__([torch.nn.Parameter(torch.ones(1))], {})
            self.inner = inner

        def step(self, closure=None):
            self.inner.step()
            self.inner.step()

    inner = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    outer = Outer(inner)
    outer.step()
    outer.step()
    assert [end.loop is outer for end in seen] == [True, True]


def test_accumulation_over_more_batches_than_anybody_waits_for_is_said(attached):
    ends, seen = attached()
    Own([torch.nn.Parameter(torch.ones(1))])
    for _ in range(65):
        backward()
    assert [(end.kind, end.before) for end in seen] == [("backward", 63)] * 2
    assert "Own had not stepped after 64 of them" in ends.remark
    assert "--step-on optimizer" in ends.remark


def test_hooks_leave_once_a_gradient_is_computed(attached):
    from torch.nn.modules import module

    before = len(module._global_forward_hooks), len(module._global_forward_pre_hooks)
    attached()
    assert len(module._global_forward_hooks) == before[0] + 1
    backward()
    assert (len(module._global_forward_hooks), len(module._global_forward_pre_hooks)) == before
