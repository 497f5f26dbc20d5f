# SPDX-License-Identifier: MIT
"""Arrays of training runs that take milliseconds, in float64, so that they are those of their models alone."""

from functools import partial

import torch
from torch import nn

from dnnsuite.training import Data, Experiment, ExperimentArray, WarmupPlateau
from tiny_training import Points, experiment

RATES = (0.05, 0.1, 0.4)


class Exact(Points):
    """Points in float64."""

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options)
        self.inputs = self.inputs.double()


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4)).double()


def plateau(optimizer, steps):
    return WarmupPlateau(optimizer, 1, factor=0.5, patience=0)


DATA = Data(Exact(50), Exact(11, seed=2), 4, "points", {}, "points")


def members(**changes) -> list[Experiment]:
    """Three runs that differ in learning rate and weight decay; the third has another seed."""
    values = {"data": DATA, "model": net, "schedule": plateau, "epochs": 4}
    return [
        experiment(
            **values
            | {
                "optimizer": partial(torch.optim.SGD, lr=lr, momentum=0.9, weight_decay=lr / 10),
                "seed": seed,
                "settings": {"lr": lr},
            }
            | changes
        )
        for lr, seed in zip(RATES, (0, 0, 1), strict=True)
    ]


def array(**changes) -> ExperimentArray:
    return ExperimentArray(members(**changes), [f"lr={lr}" for lr in RATES])


class Spoiled(Exact):
    """From `bad` on, an epoch's draws of one sample are NaN; the sample comes in each epoch."""

    bad = -1

    def __getitem__(self, index):
        x, label = super().__getitem__(index)
        return (x * torch.nan if index == self.bad else x), label
