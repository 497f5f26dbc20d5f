# SPDX-License-Identifier: MIT
"""Proximal policy optimisation: advantages and loss."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Loss(NamedTuple):
    """Loss of an update, and its parts; all `[]`."""

    total: torch.Tensor
    action: torch.Tensor
    value: torch.Tensor
    entropy: torch.Tensor


def returns(
    rewards: torch.Tensor, values: torch.Tensor, alive: torch.Tensor, gamma: float, smoothing: float
) -> torch.Tensor:
    """Compute generalised advantage estimates plus values `[T, E]` (Schulman et al., ICLR 2016).

    Args:
        rewards: `[T, E]`, of each step of each environment.
        values: `[T + 1, E]`, the critic's values before each step, and after the last.
        alive: `[T, E]`, 0 where the step ended an episode, else 1.
        gamma: the discount.
        smoothing: lambda, 0 for one step's difference, 1 for the whole return.
    """
    found = torch.empty_like(rewards)
    advantage = torch.zeros_like(rewards[0])
    for t in reversed(range(len(rewards))):
        difference = rewards[t] + gamma * values[t + 1] * alive[t] - values[t]
        advantage = difference + gamma * smoothing * alive[t] * advantage
        found[t] = advantage + values[t]
    return found


def clipped_loss(
    logits: torch.Tensor,
    values: torch.Tensor,
    actions: torch.Tensor,
    old_log_probabilities: torch.Tensor,
    old_values: torch.Tensor,
    returns: torch.Tensor,
    advantages: torch.Tensor,
    *,
    clip: float,
    value_coefficient: float,
    entropy_coefficient: float,
) -> Loss:
    """Compute the loss of a mini-batch (Schulman et al., 2017); the value's loss is clipped like the policy's.

    `logits` `[N, A]`; all others `[N]`. `old_...` are results of the policy that played.
    """
    log_probabilities = logits.log_softmax(1)
    chosen = log_probabilities.gather(1, actions.unsqueeze(1)).squeeze(1)
    ratio = (chosen - old_log_probabilities).exp()
    limited = ratio.clamp(1 - clip, 1 + clip)
    action = -torch.minimum(ratio * advantages, limited * advantages).mean()
    near = old_values + (values - old_values).clamp(-clip, clip)
    value = 0.5 * torch.maximum((values - returns).square(), (near - returns).square()).mean()
    entropy = -(log_probabilities.exp() * log_probabilities).sum(1).mean()
    total = value_coefficient * value + action - entropy_coefficient * entropy
    return Loss(total, action, value, entropy)
