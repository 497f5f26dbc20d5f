# SPDX-License-Identifier: MIT
"""torch's ReduceLROnPlateau on an array's optimizer: one metric for all models, or a refusal with the way out."""

import numpy as np
import pytest
import torch

import dnnsuite
from dnnsuite import optim
from dnnsuite.errors import InvalidArgument
from dnnsuite.ops.torch_on_arrays import take_over

B = 3


def make(classes, lr=0.1):
    array = dnnsuite.fuse([torch.nn.Linear(4, 2) for _ in range(B)])
    optimizer = classes.SGD(array.parameters(), lr=lr)
    return array, optimizer, torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)


@pytest.mark.parametrize("classes", [optim, torch.optim])
@pytest.mark.parametrize(
    "metrics", [[1.0, 2.0, 3.0], (1.0, 2.0, 3.0), torch.ones(B), np.ones(B), torch.ones(B, 1)], ids=repr
)
def test_a_metric_per_model_is_refused_and_changes_nothing(classes, metrics):
    array, _, plateau = make(classes)
    plateau.step(2.0)
    before = (plateau.best, plateau.last_epoch)
    with pytest.raises(
        InvalidArgument, match=r"got 3: for one per model use dnnsuite\.optim\.lr_scheduler\.ReduceLROnPlateau"
    ):
        plateau.step(metrics)
    assert (plateau.best, plateau.last_epoch) == before
    assert len(list(array.parameters())) == 2  # the array is alive: its parameters are known as such by its layers


def test_the_way_out_is_that_of_separate_models():
    _, optimizer, _ = make(optim)
    plateau = optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
    alone = [torch.optim.SGD(torch.nn.Linear(4, 2).parameters(), lr=0.1) for _ in range(B)]
    theirs = [torch.optim.lr_scheduler.ReduceLROnPlateau(one, factor=0.5, patience=0) for one in alone]
    for metrics in torch.tensor([[1.0, 1.0, 1.0], [2.0, 0.5, 1.0], [3.0, 0.2, 0.5]]):
        plateau.step(metrics)
        for index, own in enumerate(theirs):
            own.step(metrics[index])
    expected = [one.param_groups[0]["lr"] for one in alone]
    assert optimizer.param_groups[0]["lr"].tolist() == pytest.approx(expected)
    assert expected == [0.025, 0.1, 0.05]


@pytest.mark.parametrize("metric", [2.0, torch.tensor(2.0), torch.tensor([2.0]), np.float64(2.0)])
def test_one_metric_of_all_models(metric):
    _, optimizer, plateau = make(optim)
    plateau.step(1.0)
    plateau.step(metrics=metric)
    assert optimizer.param_groups[0]["lr"].tolist() == [0.05] * B


def test_other_optimizers_are_torchs():
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1))
    make(optim)
    with pytest.raises(ValueError, match="only one element tensors"):
        plateau.step(torch.ones(B))


def test_taking_over_again_changes_nothing():
    make(optim)
    step = torch.optim.lr_scheduler.ReduceLROnPlateau.step
    take_over()
    assert torch.optim.lr_scheduler.ReduceLROnPlateau.step is step
