# SPDX-License-Identifier: MIT
"""Optimizers as users write them, whose dependence on whole tensors no name in their code tells."""

import random

import pytest
import torch

import dnnsuite
from dnnsuite.errors import InvalidArgument
from dnnsuite.ops.optimizer_trial import coupling
from helpers import make_models


class Base(torch.optim.Optimizer):
    def __init__(self, parameters, lr=0.01):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.sub_(self.direction(p), alpha=group["lr"])


class ByShape(Base):
    """Weight decay for matrices only."""

    def direction(self, p):
        return p.grad + 10 * p if len(p.shape) > 1 else p.grad


class BySize(Base):
    """A rate by the ratio of rows and columns."""

    def direction(self, p):
        return p.grad * max(1, p.size(0) / p.size(-1)) ** 0.5


class Rule:
    def apply(self, grad):
        return grad / (getattr(grad, "no" + "rm")() + 1e-8)


class ByHelper(Base):
    """A norm in an object that it holds, under a name made as it runs."""

    def __init__(self, parameters):
        super().__init__(parameters)
        self.rule = Rule()

    def direction(self, p):
        return self.rule.apply(p.grad)


class Sorted(Base):
    def direction(self, p):
        flat = p.grad.flatten()
        return p.grad / flat[flat.abs().argsort()[-1]].abs()


class ByLimit(Base):
    """It couples numbers only where gradients are large."""

    table = (lambda g: g * (50 / getattr(g, "no" + "rm")()).clamp(max=1),)

    def direction(self, p):
        return self.table[0](p.grad)


class Started(Base):
    """A momentum that its constructor makes."""

    def __init__(self, parameters):
        super().__init__(parameters)
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p].update(mean=torch.zeros_like(p), steps=0)

    def direction(self, p):
        state = self.state[p]
        state["steps"] += 1
        return state["mean"].mul_(0.9).add_(p.grad) / state["steps"]


class Clipped(Base):
    """torch's function takes the gradients of each model by themselves."""

    def direction(self, p):
        torch.nn.utils.clip_grad_norm_([p], 0.1)
        return p.grad


class Noisy(Base):
    def direction(self, p):
        return p.grad + torch.randn_like(p)


class NoisyByDimensions(Base):
    def direction(self, p):
        return p.grad + 5 * p + torch.randn_like(p) if p.ndim > 1 else p.grad


class OfAClosure(Base):
    def step(self, closure):
        closure()
        super().step()

    def direction(self, p):
        return p.grad


class Sharpness(Base):
    """Two passes of a closure, the second at a point that all gradients choose."""

    @torch.no_grad()
    def step(self, closure):
        closure()
        params = self.param_groups[0]["params"]
        length = torch.stack([p.grad.norm() for p in params]).norm()
        moves = [p.grad * (0.05 / length) for p in params]
        for p, move in zip(params, moves, strict=True):
            p.add_(move)
        closure()
        for p, move in zip(params, moves, strict=True):
            p.sub_(move)
        super().step()

    def direction(self, p):
        return p.grad


class NowAndThen(Base):
    """A norm that is taken once in eight steps."""

    def __init__(self, parameters):
        super().__init__(parameters)
        self.count = 0

    def direction(self, p):
        self.count += 1
        return p.grad / p.grad.norm() if self.count % 8 == 0 else p.grad


class OfSingles(Base):
    """What it computes cannot be tried in float64."""

    def direction(self, p):
        assert p.dtype == torch.float32, "float32 alone"
        return p.grad


def make():
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))


def arrays_step(kind):
    array = dnnsuite.fuse(make_models(make, 2))
    optimizer = kind(array.parameters())
    array(torch.randn(2, 5, 4)).square().sum().backward()
    return array, optimizer


@pytest.mark.parametrize("kind", [ByShape, BySize, ByHelper, Sorted, ByLimit, NoisyByDimensions, NowAndThen])
def test_steps_of_whole_tensors_are_refused_before_the_first(kind):
    array, optimizer = arrays_step(kind)
    before = [p.detach().clone() for p in array.parameters()]
    with pytest.raises(InvalidArgument, match=rf"a step of {kind.__name__}, tried on two small models"):
        optimizer.step()
    assert all(map(torch.equal, array.parameters(), before))
    assert not optimizer.state
    apart = type(kind.__name__, (kind,), {"keeps_models_apart": True})
    arrays_step(apart)[1].step()


def test_a_closure_of_two_passes_is_tried():
    _, optimizer = arrays_step(Sharpness)
    with pytest.raises(InvalidArgument, match="a step of Sharpness, tried"):
        optimizer.step(lambda: None)


@pytest.mark.parametrize("kind", [Started, Clipped, Noisy, OfAClosure, torch.optim.AdamW])
def test_steps_of_single_numbers_are_taken(kind):
    torch_random, python_random = torch.get_rng_state(), random.getstate()
    _, optimizer = arrays_step(kind)
    torch_random = torch.get_rng_state()
    assert coupling(optimizer) == ""
    assert random.getstate() == python_random
    assert torch.equal(torch.get_rng_state(), torch_random)
    optimizer.step(*[lambda: None][: kind is OfAClosure])


def test_what_cannot_be_tried_is_refused_with_the_reason():
    _, optimizer = arrays_step(OfSingles)
    with pytest.raises(InvalidArgument, match=r"cannot be tried .*float32 alone"):
        optimizer.step()


def test_a_group_that_is_added_is_tried_too():
    _array, optimizer = arrays_step(Started)
    optimizer.step()
    optimizer.direction = lambda p: p.grad / getattr(p.grad, "no" + "rm")()
    optimizer.step()  # it was tried
    optimizer.add_param_group({"params": list(dnnsuite.fuse(make_models(make, 2)).parameters())})
    with pytest.raises(InvalidArgument, match="a step of Started"):
        optimizer.step()
