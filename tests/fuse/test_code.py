# SPDX-License-Identifier: MIT
"""Strange code within a model: an array computes what each model does."""

import torch
import torch.nn.functional as F

import dnnsuite
from fuse_zoo import fuse_checked
from helpers import assert_near, make_models


class DataDependent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x):
        x = self.inner(x)
        return x * 2 if x.sum() > 0 else x - 1


def test_control_flow_that_depends_on_values():
    fuse_checked(DataDependent, torch.randn(3, 2, 4))


class TakesItem(DataDependent):
    def forward(self, x):
        x = self.inner(x)
        return x * float(x.abs().max().item())


def test_a_value_that_leaves_the_tensor():
    fuse_checked(TakesItem, torch.randn(3, 2, 4))


def capturing():
    held = torch.randn(4)

    class Captures(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(4, 4)

        def forward(self, x):
            return self.inner(x) + held

    return Captures


def test_a_tensor_in_a_closure():
    """One class, one tensor for all models: it is like a constant."""
    fuse_checked(capturing(), torch.randn(3, 2, 4))


class HoldsTensor(torch.nn.Module):
    """A tensor that is neither parameter nor buffer, and differs between the models."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.held = torch.randn(4)

    def forward(self, x):
        return self.inner(x) * self.held


def test_a_tensor_that_is_no_buffer():
    fuse_checked(HoldsTensor, torch.randn(3, 2, 4))


class Scaled(torch.nn.Module):
    """A number that differs between the models."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.factor = torch.rand(()).item()

    def forward(self, x):
        return self.inner(x) * self.factor


def test_a_number_that_differs():
    fuse_checked(Scaled, torch.randn(3, 2, 4))


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x.abs().sum(-1, keepdim=True)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        total = x.abs().sum(-1, keepdim=True)
        return grad * total + x.sign() * (grad * x).sum(-1, keepdim=True)


class UsesFunction(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x):
        return Doubled.apply(self.inner(x))


def test_a_custom_autograd_function():
    made = make_models(UsesFunction, 3)
    x = torch.randn(3, 2, 4)
    array = fuse_checked(made, x)
    array(x).sum().backward()
    for index, model in enumerate(made):
        model(x[index]).sum().backward()
        assert_near(array.get_parameter("inner.weight").grad[index], model.inner.weight.grad)


class InPlace(torch.nn.Module):
    """Writes into a view of its activations, and counts its calls in a buffer."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        x = self.inner(x)
        x[:, 0] = 0
        x[:, 1:].mul_(2)
        self.calls += 1
        return F.relu_(x)


def test_writing_in_place():
    made = make_models(InPlace, 3)
    x = torch.randn(3, 2, 4)
    array = fuse_checked(made, x)
    assert array.state_dict()["calls"].tolist() == [1, 1, 1]


class Unknown(torch.nn.Module):
    """Returns what no batch is: numbers, strings, None, and a dictionary."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, x, scale=1.0):
        y = self.inner(x) * scale
        return {"y": y, "name": "unknown", "none": None, "rows": x.size(0), "pair": (y, [y + 1])}


def test_nested_results_and_keywords():
    made = make_models(Unknown, 3)
    x = torch.randn(3, 2, 4)
    found = dnnsuite.fuse(made)(x, scale=2.0)
    assert (found["name"], found["none"], found["rows"]) == ("unknown", None, 2)
    for index, model in enumerate(made):
        expected = model(x[index], scale=2.0)
        assert_near(found["y"][index], expected["y"])
        assert_near(found["pair"][1][0][index], expected["pair"][1][0])
