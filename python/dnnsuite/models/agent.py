# SPDX-License-Identifier: MIT
"""A policy and a value, two perceptrons with tanh."""

from __future__ import annotations

import torch
from torch import nn


class Agent(nn.Module):
    """Map states `[..., 4]` to the log-probabilities of both actions `[..., 2]` and the value of each state `[...]`."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.policy, self.value = _network(width, 2, 0.01), _network(width, 1, 1.0)

    def forward(self, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.policy(states).log_softmax(-1), self.value(states).squeeze(-1)


def _network(width: int, outputs: int, gain: float) -> nn.Sequential:
    layers = [nn.Linear(4, width), nn.Linear(width, width), nn.Linear(width, outputs)]
    for layer, own in zip(layers, (2**0.5, 2**0.5, gain), strict=True):
        nn.init.orthogonal_(layer.weight, own)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])
