# SPDX-License-Identifier: MIT
"""Hooks that a forward registers itself: they train as apart, by hand and by a runner, or are refused."""

import contextvars

import pytest
import torch

import dnnsuite
from dnnsuite import optim
from dnnsuite.errors import InvalidArgument
from helpers import make_models
from trained_models import check_trained, squares


class Net(torch.nn.Module):
    """`act(self)` registers hooks; `calls` counts forwards from 1."""

    def __init__(self, act):
        super().__init__()
        self.first, self.last = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
        self.act, self.calls, self.handles, self.seen = act, 0, [], []

    def forward(self, x):
        self.calls += 1
        after = self.act(self)
        y = self.last(self.first(x * self.last.weight.mean()).relu())
        return y if after is None else after(y)


def double(module, args, output):
    return output * 2


def halve(module, grad_input, grad_output):
    return tuple(None if grad is None else grad / (1 + grad.norm()) for grad in grad_input)


def once(net):
    if not net.first._forward_hooks:
        net.first.register_forward_hook(double)


def kept_by_handle(net):
    if not net.handles:
        net.handles.append(net.first.register_forward_hook(double))


def in_each_call(net):
    handle = net.first.register_forward_hook(double)

    def after(y):
        handle.remove()
        return y

    return after


def collecting(net):
    found = []
    handle = net.first.register_forward_hook(lambda module, args, output: found.append(output))

    def after(y):
        handle.remove()
        return y + found[0].mean(-1, keepdim=True)

    return after


def into_its_net(net):
    if net.calls == 1:
        net.first.register_forward_hook(lambda module, args, output: net.seen.append(output))
    net.seen.clear()
    return lambda y: y + sum(output.mean(-1, keepdim=True) for output in net.seen)


def one_more_each_time(net):
    if net.calls < 4:
        net.first.register_forward_hook(double)


def late(net):
    if net.calls == 9:
        net.first.register_forward_hook(double)


def late_backward(net):
    if net.calls == 9:
        net.first.register_full_backward_hook(halve)


def backward(net):
    if net.calls == 1:
        net.first.register_full_backward_hook(halve)


WAYS = [once, kept_by_handle, in_each_call, collecting, into_its_net, one_more_each_time, late, late_backward, backward]


@pytest.mark.parametrize("options", [{}, {"threads": 2}, {"threads": 1, "width": 2}], ids=str)
@pytest.mark.parametrize("act", WAYS)
def test_hooks_of_a_forward_train_as_apart(act, options):
    check_trained(lambda: Net(act), steps=11, runner=True, **options)


def in_the_next_call(net):
    for handle in net.handles:
        handle.remove()
    net.handles = [net.first.register_forward_hook(double)]


def on_a_parameter(net):
    if net.calls == 1:
        net.first.weight.register_hook(lambda grad: grad / 2)


def test_a_hook_that_a_later_step_removes_is_right_by_hand_and_where_steps_compute_with_the_array():
    check_trained(lambda: Net(in_the_next_call), steps=11, threads=1, width=2)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_hook_that_a_later_step_removes_is_refused_where_several_shards_have_it(threads):
    with pytest.raises(InvalidArgument, match="removes a hook"):
        check_trained(lambda: Net(in_the_next_call), threads=threads, width=1)


def test_a_forward_that_hooks_the_gradient_of_a_parameter_is_refused():
    array = dnnsuite.fuse(make_models(lambda: Net(on_a_parameter), 2))
    with pytest.raises(InvalidArgument, match="hook on the gradient"):
        squares(array, torch.ones(2, 3, 4))


def test_a_backward_hook_on_a_layer_of_a_sequential_is_refused_where_it_would_not_be_called():
    array = dnnsuite.fuse(make_models(lambda: torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)), 2))
    handle = array.get_submodule("1").register_full_backward_hook(halve)
    with pytest.raises(InvalidArgument, match="backward hook"):
        squares(array, torch.ones(2, 3, 4))
    with pytest.raises(InvalidArgument, match="backward hook"):
        dnnsuite.StepRunner(array, optim.SGD(array.parameters(), lr=0.1), squares)
    handle.remove()
    assert squares(array, torch.ones(2, 3, 4)).shape == (2,)


FOUND = contextvars.ContextVar("found", default=None)


class Collected(torch.nn.Module):
    """Installs hooks in its first forward, and decides by values in which the models differ."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(2))
        self.installed = False

    def forward(self, x):
        if not self.installed:
            for layer in self.layers:
                layer.register_forward_hook(lambda layer, args, output: FOUND.get().append(output))
            self.installed = True
        token = FOUND.set([])
        try:
            x = x if x.mean() > self.layers[0].weight.mean() else -x
            for layer in self.layers:
                x = layer(x).tanh()
            return x, tuple(FOUND.get())
        finally:
            FOUND.reset(token)


class Whole(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Collected()

    def forward(self, x):
        x, found = self.inner(x)
        return x + sum(output.pow(2).mean() for output in found)


@pytest.mark.parametrize("threads", [1, 2])
def test_hooks_of_models_of_a_part_are_called_once_where_the_whole_may_run_model_by_model(threads):
    check_trained(Whole, B=3, steps=24, threads=threads)
