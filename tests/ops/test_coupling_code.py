# SPDX-License-Identifier: MIT
"""Code of optimizers that computes with whole tensors, as LAMB's does, is told from code of single numbers."""

import math
import types

import pytest
import torch
from torch import norm as length

from dnnsuite.ops.coupling_code import coupling_name

helpers = types.ModuleType("helpers_of_an_optimizer")
exec("def centered(g):\n    return g - g.mean()\n", vars(helpers))


def whitened(gradient):
    return gradient @ gradient.T


def halved(gradient):
    return gradient * 0.5


class Base(torch.optim.Optimizer):
    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr})


class Signs(Base):
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            total = sum(1 for _ in group["params"])
            for p in group["params"]:
                p.add_(halved(p.grad).sign(), alpha=-group["lr"] * max(1, math.sqrt(total)) / total)


class Method(Base):
    @torch.no_grad()
    def step(self, closure=None):
        [p.sub_(p.grad / p.grad.norm()) for group in self.param_groups for p in group["params"]]


class Function(Base):
    def scale(self, p):
        return torch.linalg.vector_norm(p)


class ByName(Base):
    def scale(self, p):
        return length(p)


class Helper(Base):
    def scale(self, p):
        return whitened(p)


class OfModule(Base):
    def scale(self, p):
        return helpers.centered(p)


class Heir(Method):
    pass


class LargestOfTwo(Base):
    def scale(self, p):
        return torch.max(p, p.grad) * max(0.1, min(1.0, 2.0))


class Largest(Base):
    def scale(self, p):
        return p.grad.abs().max()


class DecaysMatrices(Base):
    def scale(self, p):
        return 0.1 if p.ndim > 1 else 0.0


class ByCount(Base):
    def scale(self, p):
        return p.numel() ** -0.5


class SkipsAllIfOneIsNaN(Base):
    def scale(self, p):
        return 0.0 if torch.isnan(p.grad).any() else any((1.0,))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Signs, None),
        (Base, None),
        (torch.optim.LBFGS, None),
        (Method, "norm"),
        (Function, "vector_norm"),
        (Helper, "@"),
        (OfModule, "mean"),
        (Heir, "norm"),
        (LargestOfTwo, None),
        (Largest, "max"),
        (DecaysMatrices, "ndim"),
        (ByCount, "numel"),
        (SkipsAllIfOneIsNaN, "any"),
    ],
)
def test_what_couples_is_named(kind, name):
    assert coupling_name(kind) == name


def test_a_name_that_an_import_gives_is_the_functions():
    assert coupling_name(ByName) == "norm"
