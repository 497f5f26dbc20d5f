# SPDX-License-Identifier: MIT
"""Weight decay for matrices only, chosen for an array as it is for each of its models."""

import warnings

import pytest
import torch

import dnnsuite
from dnnsuite import optim
from dnnsuite.errors import InvalidArgument
from helpers import assert_near, make_models


def make():
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 2))


def by_dimensions(model):
    params = list(model.parameters())
    decayed, others = ([p for p in params if (p.dim() >= 2) is many] for many in (True, False))
    return [{"params": decayed, "weight_decay": 0.5}, {"params": others, "weight_decay": 0.0}]


def all_but_the_biases(model):
    named = dict(model.named_parameters())
    biases = [p for name, p in named.items() if name.endswith("bias") or name == "2.weight"]
    held = {id(p) for p in biases}
    decayed = [p for p in named.values() if id(p) not in held]
    return [{"params": biases, "weight_decay": 0.0}, {"params": decayed, "weight_decay": 0.3, "lr": 0.02}]


def train(model, optimizer, x):
    for _ in range(4):
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()


@pytest.mark.parametrize(
    ("helper", "of_array"),
    [
        (by_dimensions, lambda array: optim.decay_groups(array, 0.5)),
        (by_dimensions, lambda array: optim.decay_groups(array, helper=by_dimensions)),
        (all_but_the_biases, lambda array: optim.decay_groups(array, helper=all_but_the_biases)),
    ],
)
@pytest.mark.parametrize("kind", [optim.AdamW, torch.optim.AdamW])
def test_an_array_decays_what_its_models_decay(helper, of_array, kind):
    models = make_models(make, 3, torch.float64)
    array, x = dnnsuite.fuse(models), torch.randn(3, 5, 4, dtype=torch.float64)
    train(array, kind(of_array(array), lr=0.1), x)
    for model, back, own in zip(models, dnnsuite.unfuse(array), x, strict=True):
        train(model, torch.optim.AdamW(helper(model), lr=0.1), own)
        for mine, theirs in zip(back.parameters(), model.parameters(), strict=True):
            assert_near(mine, theirs)


@pytest.mark.parametrize("kind", [optim.AdamW, torch.optim.AdamW])
def test_a_choice_by_an_arrays_dimensions_is_warned_of(kind):
    array = dnnsuite.fuse(make_models(make, 3))
    with pytest.warns(UserWarning, match=r"Write optim.decay_groups\(array, 0.5\)") as found:
        kind(by_dimensions(array))
    assert found[0].filename == __file__
    biases = [p for name, p in array.named_parameters() if name.endswith("bias")]
    rest = [p for name, p in array.named_parameters() if not name.endswith("bias")]
    with pytest.warns(UserWarning, match="a choice by p.dim"):  # the norms' weights are vectors too
        kind([{"params": biases, "weight_decay": 0.0}, {"params": rest, "weight_decay": 0.1}])
    with pytest.warns(UserWarning, match="a choice by p.dim"):
        optim.AdamW(by_dimensions(array)[:1])


def test_other_groups_are_not_warned_of():
    models = make_models(make, 3)
    array = dnnsuite.fuse(models)
    named = dict(array.named_parameters())
    halves = [list(named.values())[:4], list(named.values())[4:]]
    matrices = [p for p in named.values() if p.dim() > 2]
    vectors = [p for p in named.values() if p.dim() <= 2]
    norms = [p for name, p in named.items() if name.startswith("1.")]
    others = [p for name, p in named.items() if not name.startswith("1.")]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optim.AdamW([{"params": p, "weight_decay": d} for p, d in ((others, 0.1), (norms, 0.0))])
        optim.AdamW([{"params": p, "weight_decay": d} for p, d in zip(halves, (0.1, 0.01), strict=True)])
        optim.AdamW([{"params": p, "weight_decay": d} for p, d in ((matrices, 0.1), (vectors, 0.0))])
        optim.AdamW([{"params": half, "lr": lr} for half, lr in zip(halves, (0.1, 0.01), strict=True)])
        optim.AdamW(array.parameters(), weight_decay=0.1)
        torch.optim.AdamW(by_dimensions(models[0]))


def test_a_helper_that_returns_no_groups_is_refused():
    array = dnnsuite.fuse(make_models(make, 2))
    with pytest.raises(InvalidArgument, match="returned no groups of model 0's parameters"):
        optim.decay_groups(array, helper=lambda model: [{"weights": list(model.parameters())}])
    with pytest.raises(InvalidArgument, match="returned no groups"):
        optim.decay_groups(array, helper=lambda model: list(array.parameters()))
