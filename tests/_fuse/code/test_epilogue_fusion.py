# SPDX-License-Identifier: MIT
"""Layers that compute what follows them, and code that does something else with the result."""

import pytest
import torch
from torch.nn import functional as F

import dnnsuite
from dnnsuite._fuse.code.epilogue_fusion import activation_of
from helpers import assert_near, make_models


class Block(torch.nn.Module):
    """`after(norm(x), linear(x), skip)` of a user's."""

    def __init__(self, after):
        super().__init__()
        self.after = after
        self.linear = torch.nn.Linear(6, 6)
        self.norm = torch.nn.BatchNorm1d(6)

    def forward(self, x):
        return self.after(self, x)


def kept(block, x):
    y = block.norm(x)
    return F.relu(y) + y * 2


def kept_and_overwritten(block, x):
    x = x * 1
    y = block.norm(x)
    z = F.relu(y)
    x += 100
    return z + y


def in_place(block, x):
    y = block.norm(block.linear(x))
    z = y
    F.relu(y, inplace=True)
    return z


def summed_in_place(block, x):
    y = block.norm(x)
    y += block.linear(x)
    return y.relu_()


def in_no_grad(block, x):
    y = block.norm(x)
    with torch.no_grad():
        z = F.relu(y)
    return y + z


AFTER = {
    "relu": lambda b, x: F.relu(b.norm(x)),
    "relu6": lambda b, x: torch.nn.ReLU6()(b.norm(x) * 1) + F.hardtanh(b.norm(x), 0.0, 6.0),
    "leaky": lambda b, x: F.leaky_relu(b.norm(x), 0.3) + F.leaky_relu(b.linear(x)),
    "hardswish": lambda b, x: F.hardswish(b.norm(x)) + F.silu(b.norm(b.linear(x))),
    "linear": lambda b, x: torch.relu(b.linear(x)) + b.linear(x).relu().tanh(),
    "gelu": lambda b, x: F.gelu(b.linear(x)) + F.gelu(b.norm(x)) + F.gelu(b.linear(x), approximate="tanh"),
    "residual": lambda b, x: F.relu(b.norm(x) + x),
    "residual behind": lambda b, x: F.relu(x + b.norm(b.linear(x))),
    "residual alone": lambda b, x: b.norm(x) + b.linear(x),
    "both deferred": lambda b, x: F.relu(b.norm(x) + b.norm(b.linear(x))),
    "twice the same": lambda b, x: (lambda y: F.relu(y + y))(b.norm(x)),
    "other shape": lambda b, x: F.relu(b.norm(x) + b.linear(x)[:1]),
    "a number": lambda b, x: F.relu(b.norm(x) + 1),
    "unused": lambda b, x: (b.norm(x), x * 2)[1],
    "viewed": lambda b, x: F.relu(b.norm(x).view(-1, 2)).flatten(),
    "two activations": lambda b, x: (lambda y: F.relu(y) + F.silu(y))(b.norm(x)),
    "kept": kept,
    "in place": in_place,
    "summed in place": summed_in_place,
    "no grad": in_no_grad,
}


def assert_trains_alike(array, models, x):
    """Two forward and backward passes: results, gradients and buffers are the models'."""
    mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    for _ in range(2):
        output = array(mine)
        expected = torch.stack([model(theirs[i]) for i, model in enumerate(models)])
        assert_near(output, expected)
        weights = torch.randn_like(output)
        (output * weights).sum().backward()
        (expected * weights).sum().backward()
    assert_near(mine.grad, theirs.grad)
    for index, model in enumerate(models):
        for key, value in model.state_dict().items():
            torch.testing.assert_close(array.state_dict()[key][index], value)
        for key, parameter in model.named_parameters():
            grad = array.get_parameter(key).grad
            assert (grad is None) == (parameter.grad is None)
            if grad is not None:
                torch.testing.assert_close(grad[index], parameter.grad, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", AFTER)
@pytest.mark.parametrize("training", [True, False])
def test_equals_the_models(name, training):
    models = [m.train(training) for m in make_models(lambda: Block(AFTER[name]), 3)]
    array = dnnsuite.fuse(models)
    x = torch.randn(3, 8, 6)
    assert_trains_alike(array, models, x)
    assert not [cover for cover in array.coverage() if cover.how in ("mapped", "per model")]


def test_an_input_may_be_overwritten_afterwards():
    models = make_models(lambda: Block(kept_and_overwritten), 3)
    x = torch.randn(3, 8, 6)
    with torch.no_grad():
        output = dnnsuite.fuse(models)(x)
        for index, model in enumerate(models):
            assert_near(output[index], model(x[index]))


def test_names_of_activations():
    assert activation_of(torch.nn.ReLU(inplace=True)) == ("relu", 0.0)
    assert activation_of(torch.nn.LeakyReLU(0.25)) == ("leaky_relu", 0.25)
    assert activation_of(torch.nn.GELU()) == ("gelu", 0.0)
    assert activation_of(torch.nn.GELU("tanh")) is None
    assert activation_of(torch.nn.Tanh()) is None


class Cloud(torch.nn.Module):
    """`after(norm(convolution(x)))` of points `[N, 3, L]`, in modules of their own."""

    def __init__(self, after):
        super().__init__()
        self.after = after
        self.points = torch.nn.Sequential(torch.nn.Conv1d(3, 6, 1), torch.nn.BatchNorm1d(6))
        with torch.no_grad():
            self.points[1].weight.uniform_(-1, 1)  # some channels are turned round
            self.points[1].bias.uniform_(-1, 1)

    def forward(self, x):
        return self.after(self, self.points(x))


def both(cloud, y):
    z = F.relu(y)
    return z.max(2).values + z.sum(2) + y.mean(2)


def with_indices(cloud, y):
    values, indices = torch.max(F.leaky_relu(y, 0.2), 2, keepdim=True)
    return values + y.gather(2, indices)


LARGEST = {
    "alone": lambda c, y: torch.max(y, 2)[0],
    "relu": lambda c, y: torch.max(F.relu(y), 2, keepdim=True)[0],
    "relu6, in place": lambda c, y: F.relu6(y, inplace=True).max(dim=-1).values,
    "turned": lambda c, y: F.leaky_relu(y, -0.5).max(2).values,
    "over channels": lambda c, y: F.relu(y).max(1).values,
    "silu": lambda c, y: F.silu(y).max(2).values,
    "amax": lambda c, y: F.relu(y).amax(2),
    "twice": lambda c, y: F.relu(y).max(2).values + F.relu(y).max(2).values,
    "both": both,
    "with indices": with_indices,
    "not used": lambda c, y: F.relu(y),
}


@pytest.mark.parametrize("name", LARGEST)
@pytest.mark.parametrize("training", [True, False])
def test_the_largest_over_points(name, training):
    models = [m.train(training) for m in make_models(lambda: Cloud(LARGEST[name]), 3)]
    array = dnnsuite.fuse(models)
    x = torch.randn(3, 4, 3, 10)
    assert_trains_alike(array, models, x)


def test_the_norm_is_not_written_for_a_maximum(monkeypatch):
    called = []
    largest = dnnsuite.ops.batch_norm_max
    monkeypatch.setattr(dnnsuite.ops, "batch_norm_max", lambda *a: called.append(a[6]) or largest(*a))
    monkeypatch.setattr(dnnsuite.ops, "batch_norm_act", None)
    dnnsuite.fuse(make_models(lambda: Cloud(LARGEST["relu"]), 2))(torch.randn(2, 4, 3, 10))
    assert called == ["relu"]
