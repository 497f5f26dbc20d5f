# SPDX-License-Identifier: MIT
"""Advantages and loss against their definitions, written out in numbers."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dnnsuite.jobs import reinforcement


@given(st.integers(0, 2**31), st.integers(1, 7), st.floats(0, 1), st.floats(0, 1))
@settings(max_examples=30, deadline=None)
def test_returns_are_the_weighted_sum_of_differences(seed, steps, gamma, smoothing):
    """Equation 16 of the paper, as a sum to the end of the episode instead of a recursion."""
    random = torch.Generator().manual_seed(seed)
    rewards, values = torch.randn(steps, 2, generator=random), torch.randn(steps + 1, 2, generator=random)
    alive = (torch.rand(steps, 2, generator=random) > 0.3).float()
    found = reinforcement.returns(rewards, values, alive, gamma, smoothing)
    for e in range(2):
        for t in range(steps):
            total, weight = 0.0, 1.0
            for k in range(t, steps):
                following = float(values[k + 1, e]) if alive[k, e] else 0.0
                total += weight * (float(rewards[k, e]) + gamma * following - float(values[k, e]))
                if not alive[k, e]:
                    break
                weight *= gamma * smoothing
            assert float(found[t, e]) == pytest.approx(total + float(values[t, e]), abs=1e-4)


def test_loss_by_hand():
    # Two actions with probabilities 0.8 and 0.2; the old policy gave the chosen ones 0.5 and 0.4.
    chances = torch.tensor([[math.log(0.8), math.log(0.2)]] * 2)
    loss = reinforcement.clipped_loss(
        chances,
        torch.tensor([1.0, 2.0]),
        torch.tensor([0, 1]),
        torch.tensor([0.5, 0.4]).log(),
        torch.tensor([0.7, 2.05]),
        torch.tensor([1.5, 3.0]),
        torch.tensor([2.0, -1.0]),
        clip=0.1,
        value=0.25,
        entropy=0.01,
    )
    # Ratios are 1.6 and 0.5. The first gains 2 · 1.1, clipped; the second -1 · 0.9, clipped: the worse of both.
    action = -(2 * 1.1 - 0.9) / 2
    # The first value moved by 0.3, clipped to 0.8: (0.8 - 1.5)² is more than (1 - 1.5)²; the second by -0.05.
    value = 0.5 * (0.7**2 + 1.0**2) / 2
    entropy = -(0.8 * math.log(0.8) + 0.2 * math.log(0.2))
    assert float(loss) == pytest.approx(0.5 * value + action - 0.01 * entropy)


def test_no_gradient_from_what_is_clipped():
    logits = torch.zeros(1, 2, requires_grad=True)
    arguments = (torch.zeros(1), torch.tensor([0]), torch.tensor([0.3]).log(), torch.zeros(1), torch.zeros(1))
    coefficients = {"clip": 0.1, "value": 0.25, "entropy": 0.0}
    # The ratio is 0.5 / 0.3: what is good is as much as it may be, what is bad is to be undone.
    reinforcement.clipped_loss(logits.log_softmax(1), *arguments, torch.ones(1), **coefficients).backward()
    assert not logits.grad.any()
    reinforcement.clipped_loss(logits.log_softmax(1), *arguments, -torch.ones(1), **coefficients).backward()
    assert logits.grad[0, 0] > 0
