# SPDX-License-Identifier: MIT
"""Proximal policy optimisation (Schulman et al., 2017): advantages and the loss of a mini-batch."""

from __future__ import annotations

from .._lazy import torch


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
    log_probabilities: torch.Tensor,
    values: torch.Tensor,
    actions: torch.Tensor,
    old_log_probabilities: torch.Tensor,
    old_values: torch.Tensor,
    returns: torch.Tensor,
    advantages: torch.Tensor,
    *,
    clip: float,
    value: float,
    entropy: float,
) -> torch.Tensor:
    """Compute the loss `[]`; the squared error of the value is clipped as the policy's gain is.

    Args:
        log_probabilities: `[N, A]` of all actions; all others `[N]`, `old_...` of the policy that played.
        clip: distance from the old policy, and from the old value.
        value, entropy: weights of the value's error and of the entropy.
    """
    chosen = log_probabilities.gather(1, actions.unsqueeze(1)).squeeze(1)
    ratio = (chosen - old_log_probabilities).exp()
    gain = torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages).mean()
    near = old_values + (values - old_values).clamp(-clip, clip)
    error = torch.maximum((values - returns).square(), (near - returns).square()).mean()
    spread = -(log_probabilities.exp() * log_probabilities).sum(1).mean()
    return value * error - gain - entropy * spread
