# SPDX-License-Identifier: MIT
"""A training run that takes milliseconds: eight numbers, four classes, dropout and running statistics."""

from functools import partial

import torch
from torch import nn

from dnnsuite.training import Data, Experiment


class Points:
    """Samples whose class is the largest of their first four numbers; each draw adds noise from torch's generator."""

    def __init__(self, count: int, noise: float = 0.0, seed: int = 1) -> None:
        self.inputs = torch.randn(count, 8, generator=torch.Generator().manual_seed(seed))
        self.labels = self.inputs[:, :4].argmax(1)
        self.noise = noise

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.inputs[index]
        return (x + self.noise * torch.randn(8) if self.noise else x), self.labels[index]


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 4))


def experiment(**changes) -> Experiment:
    """50 samples to train, 11 to validate, in batches of 8."""
    values = {
        "name": "points",
        "model": net,
        "data": Data(Points(50, noise=0.1), Points(11, seed=2), 4, "points", {}, "points"),
        "optimizer": partial(torch.optim.SGD, lr=0.1, momentum=0.9),
        "epochs": 2,
        "batch_size": 8,
        "valid_batch_size": 4,
        "log_every": 2,
    }
    return Experiment(**(values | changes))
