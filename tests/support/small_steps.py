# SPDX-License-Identifier: MIT
"""A small classifier, its batches and its loop by hand: what a StepRunner must do."""

import torch

import dnnsuite
from dnnsuite import nn, optim
from helpers import make_models


def classifier():
    return torch.nn.Sequential(
        torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)
    )


def loss(array, x, y):
    return nn.functional.cross_entropy(array(x), y)


def make(B):
    array = dnnsuite.fuse(make_models(classifier, B), seeds=range(B))
    lr = [0.1 / (i + 1) for i in range(B)]
    return array, optim.Adam(array.parameters(), lr=lr)


def batches(B, count):
    generator = torch.Generator().manual_seed(0)
    return [
        (torch.randn(B, 8, 6, generator=generator), torch.randint(4, (B, 8), generator=generator)) for _ in range(count)
    ]


def by_hand(B, steps):
    array, optimizer = make(B)
    losses = []
    for batch in batches(B, steps):
        optimizer.zero_grad()
        values = loss(array, *batch)
        values.sum().backward()
        optimizer.step()
        losses.append(values.detach())
    return array, losses


def squares(array, x):
    return array(x).square().mean((1, 2))
