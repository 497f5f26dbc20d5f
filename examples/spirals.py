# SPDX-License-Identifier: MIT
"""Your own workload: run `dnnsuite workflow spirals --plugin spirals` in this folder."""

import math

import torch

from dnnsuite import jobs
from dnnsuite.data.batches import ArrayBatches


def model(options, hyper):  # one plain model; `hyper` has its hyper-parameters
    width, drop = options["width"], torch.nn.Dropout(hyper["dropout"])
    return torch.nn.Sequential(
        torch.nn.Linear(2, width), torch.nn.Tanh(), torch.nn.Linear(width, width), torch.nn.Tanh(), drop,
        torch.nn.Linear(width, 2),
    )  # fmt: skip


def data(config, options):  # batches of positions on two spirals, and the spiral of each
    t = 3 * math.pi * torch.rand(4096, generator=torch.Generator().manual_seed(config.data_seed)).sqrt()
    arm = torch.arange(4096) % 2
    xy = torch.stack([torch.cos(t + math.pi * arm), torch.sin(t + math.pi * arm)], 1) * t[:, None] / 10
    return ArrayBatches(xy, arm, batch_size=config.batch_size, seed=config.data_seed, record={"source": "two spirals"})


def loss(model, xy, arm):  # of one model
    return torch.nn.functional.cross_entropy(jobs.widened(model(xy)), arm)


jobs.declare(
    jobs.Workload(
        name="spirals",
        description="which of two spirals a point is on",
        unit="points",
        options={"width": 64},
        hyper={"lr": 0.01, "dropout": 0.1, "gamma": 0.9},
        sample=lambda g: {"lr": 10 ** g.uniform(-3, -1), "dropout": g.uniform(0, 0.5), "gamma": g.uniform(0.5, 1)},
        model=model, data=data, loss=loss,
        optimizer=jobs.Made("Adam", {"lr": "lr", "betas": (0.9, 0.99)}),
        schedule=jobs.Made("ExponentialLR", {"gamma": "gamma"}),
        presets={"default": jobs.Preset(epochs=3, iters_per_epoch=50, batch_size=64, plan=(1, 4, 16))},
    )
)  # fmt: skip
