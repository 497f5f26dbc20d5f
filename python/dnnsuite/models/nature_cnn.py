# SPDX-License-Identifier: MIT
"""The policy of Atari players (Mnih et al., Nature 2015), as in Kostrikov's PPO (2018), which the suite used."""

from __future__ import annotations

import math

import torch
from torch import nn


class NatureCNN(nn.Module):
    """Images `[N, 4, 84, 84]` of bytes to the logits of actions `[N, A]` and the values of states `[N]`.

    Three convolutions and a layer of 512, shared by both heads. The third convolution has 32 filters, not the paper's
    64. Weights are orthogonal, with gain sqrt(2), 0.01 for the policy and 1 for the value; biases are 0.
    """

    def __init__(self, actions: int, images: int = 4) -> None:
        super().__init__()
        relu = math.sqrt(2)
        self.body = nn.Sequential(
            _orthogonal(nn.Conv2d(images, 32, 8, stride=4), relu),
            nn.ReLU(),
            _orthogonal(nn.Conv2d(32, 64, 4, stride=2), relu),
            nn.ReLU(),
            _orthogonal(nn.Conv2d(64, 32, 3, stride=1), relu),
            nn.ReLU(),
            nn.Flatten(),
            _orthogonal(nn.Linear(32 * 7 * 7, 512), relu),
            nn.ReLU(),
        )
        self.value = _orthogonal(nn.Linear(512, 1), 1.0)
        self.policy = _orthogonal(nn.Linear(512, actions), 0.01)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = self.body(images.float() / 255)
        return self.policy(features), self.value(features).squeeze(1)


def _orthogonal(layer: nn.Conv2d | nn.Linear, gain: float) -> nn.Module:
    assert layer.bias is not None
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer
