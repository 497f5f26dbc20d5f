# SPDX-License-Identifier: MIT
"""torch's own checkpoint in a model's forward: buffers, random numbers and gradients are those of separate models."""

import copy
import itertools

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import CheckpointFunction, checkpoint, checkpoint_sequential

import dnnsuite
from dnnsuite import optim

_numbers = itertools.count()


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad * ctx.saved_tensors[0]


class Base(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.reentrant = reentrant
        self.first, self.norm, self.last = nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 2)
        self.middle = nn.Sequential(nn.Linear(5, 5), nn.BatchNorm1d(5), nn.ReLU())
        self.register_buffer("count", torch.zeros(()))

    def saved(self, function, *args):
        return checkpoint(function, *args, use_reentrant=self.reentrant)

    def forward(self, x):
        return self.last(self.inside(self.first(x)))


class OnLayers(Base):
    """The batch norm is the last thing that a checkpoint computes; the activation after it is outside."""

    def inside(self, h):
        return torch.relu(self.saved(self.norm, self.saved(self.middle, h)))


class OnAMethod(Base):
    def body(self, h, w):
        self.count = self.count + 1
        return self.norm(h).tanh() * w, h.sin()

    def inside(self, h):
        a, b = self.saved(self.body, h, h.mean())
        return a + b


class Sequential(Base):
    def inside(self, h):
        return checkpoint_sequential(self.middle, 2, h, use_reentrant=self.reentrant)


class Nested(Base):
    def inside(self, h):
        return self.saved(lambda z: self.saved(self.middle, z) * 2, h)


class Branches(Base):
    def inside(self, h):
        return self.saved(self.middle, h) if h.sum() > -1e9 else h


class FunctionInside(Base):
    """What cannot be fused turns up while a checkpoint takes notes."""

    def inside(self, h):
        return self.saved(lambda z: Square.apply(self.norm(z)), h)


class Squared(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(5)

    def forward(self, h):
        return Square.apply(self.norm(h))


class PartInside(Base):
    """It turns up in a part of its own, which a checkpoint runs."""

    def __init__(self, reentrant):
        super().__init__(reentrant)
        self.part = Squared()

    def inside(self, h):
        return self.saved(self.part, h)


class WritesInside(Base):
    def body(self, h):
        wider = torch.zeros(len(h), 5, dtype=h.dtype)
        wider[:, 1:] = h[:, 1:]
        return torch.sigmoid(self.norm(wider))

    def inside(self, h):
        return self.saved(self.body, h)


class Differs(OnAMethod):
    """Models with an attribute each run one by one, in modules of their own."""

    def __init__(self, reentrant):
        super().__init__(reentrant)
        self.scale = 1 + 0.1 * next(_numbers)

    def inside(self, h):
        return super().inside(h) * self.scale


FUSED = [OnLayers, OnAMethod, Sequential, Nested]
CASES = [*FUSED, Branches, FunctionInside, PartInside, WritesInside, Differs]


def loss_of(module, x):
    return module(x).square().flatten(1).mean(1)


def trained_apart(models, x, steps):
    for model, own in zip(models, x, strict=True):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(steps):
            optimizer.zero_grad()
            model(own).square().mean().backward()
            optimizer.step()
    return [model.state_dict() for model in models]


def train(array, x, steps, ways):
    """Train the array; `ways` are threads and width of a StepRunner, None to step by hand. Return the mode."""
    optimizer = optim.SGD(array.parameters(), lr=0.1)
    if ways is None:
        for _ in range(steps):
            optimizer.zero_grad()
            loss_of(array, x).sum().backward()
            optimizer.step()
        return ""
    with dnnsuite.StepRunner(array, optimizer, loss_of, threads=ways[0], width=ways[1]) as runner:
        for _ in range(steps):
            runner.step(x).losses()
        return runner.mode


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_trains_as_separate_models_do(case, reentrant):
    models = [case(reentrant).double() for _ in range(2)]
    x = torch.randn(2, 6, 4, dtype=torch.float64)
    for ways in (None, (1, 2), (2, 1)):
        array = dnnsuite.fuse(copy.deepcopy(models))
        mode = train(array, x, 5, ways)
        assert mode in ("", "captured") or case not in FUSED
        for index, expected in enumerate(trained_apart(copy.deepcopy(models), x, 5)):
            for name, value in array.model_state_dict(index).items():
                torch.testing.assert_close(value, expected[name], rtol=1e-10, atol=1e-12, msg=name)


def test_a_part_is_computed_for_all_models_at_once():
    for reentrant in (False, True):
        array = dnnsuite.fuse([OnLayers(reentrant) for _ in range(2)])
        train(array, torch.randn(2, 6, 4), 2, None)
        assert not any(cover.reason for cover in array.coverage())


class Draws(Base):
    """Dropout in a layer and as a function, and noise, drawn in checkpoints in each other or in none."""

    def __init__(self, how):
        super().__init__(how == "reentrant")
        self.how, self.dropout = how, nn.Dropout(0.5)

    def body(self, h):
        return nn.functional.dropout(self.dropout(self.norm(h)), 0.2, self.training) + torch.rand_like(h)

    def inside(self, h):
        if self.how == "plain":
            return self.body(self.body(h))
        inner = self.saved if self.how != "ours" else dnnsuite.nn.checkpoint
        return inner(lambda z: self.body(inner(self.body, z)), h)


def test_numbers_are_drawn_once():
    torch.manual_seed(0)
    made = [Draws("plain").double().eval() for _ in range(2)]
    for model in made:
        model.dropout.train()
        model.training = True
    x = torch.randn(2, 6, 4, dtype=torch.float64)

    def end(how, ways):
        for model in made:
            model.how, model.reentrant = how, how == "reentrant"
        array = dnnsuite.fuse(made, seeds=[1, 2])
        assert train(array, x, 5, ways) in ("", "captured")
        return torch.cat([p.detach().flatten() for p in array.parameters()])

    expected = end("plain", None)
    for how, ways in (("reentrant", None), ("other", (1, 2)), ("reentrant", (2, 1)), ("ours", (1, 1))):
        torch.testing.assert_close(end(how, ways), expected, rtol=1e-12, atol=1e-12)


def test_torch_is_left_as_it_was():
    before = torch.utils.checkpoint._checkpoint_without_reentrant_generator
    array = dnnsuite.fuse([OnLayers(True) for _ in range(2)])
    train(array, torch.randn(2, 6, 4), 2, (2, 1))
    with pytest.raises(RuntimeError):
        array(torch.randn(2, 6, 3))
    assert torch.utils.checkpoint.CheckpointFunction is CheckpointFunction
    assert torch.utils.checkpoint._checkpoint_without_reentrant_generator is before
