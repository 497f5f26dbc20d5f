# SPDX-License-Identifier: MIT
"""Optimizers that compute with a parameter's sizes, on adapters of one rank and of several."""

import pytest
import torch

import dnnsuite
from dnnsuite import optim
from dnnsuite.errors import InvalidArgument
from tiny_adapters import peft


def array_of(ranks):
    base = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    configs = [peft.LoraConfig(r=rank, target_modules=["0"]) for rank in ranks]
    return dnnsuite.adapt(base, configs, seeds=list(range(len(ranks))))


@pytest.mark.parametrize("kind", [optim.Adafactor, optim.Muon])
def test_ranks_that_differ_are_refused(kind):
    array = array_of([2, 4])
    trained = [p for p in array.parameters() if p.requires_grad]
    with pytest.raises(InvalidArgument, match="adapters of several ranks"):
        kind(trained)
    same = array_of([3, 3])
    optimizer = kind([p for p in same.parameters() if p.requires_grad], lr=0.1)
    same(torch.randn(2, 5, 6)).square().sum().backward()
    optimizer.step()


def test_norms_do_not_see_the_room():
    array = array_of([2, 4])
    optimizer = optim.LAMB([p for p in array.parameters() if p.requires_grad], lr=0.1)
    array(torch.randn(2, 5, 6)).square().sum().backward()
    optimizer.step()
    assert all(p.isfinite().all() for p in array.parameters())
