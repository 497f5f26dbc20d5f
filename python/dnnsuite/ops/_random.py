# SPDX-License-Identifier: MIT
"""Random numbers of each model from its own stream, on a CPU."""

from __future__ import annotations

import torch
from torch import Tensor

from .device import on_cpu
from .library import below_autograd, fakes_like, library, tracing, transforming

_numbers = library.random_numbers.default
_OWN = (torch.float32, torch.float64)


fakes_like("like", "random_numbers")


def draws_numbers(like: Tensor, rng: Tensor) -> bool:
    """Return True if `random_numbers(like, rng, ...)` may be called: for float32 and float64 on a CPU."""
    return like.dtype in _OWN and like.dim() > 0 and on_cpu(like) and on_cpu(rng) and not transforming()


def random_numbers(like: Tensor, rng: Tensor, distribution: str, first: float, second: float = 0.0) -> Tensor:
    """Draw numbers for each model into a new contiguous tensor of the shape and dtype of `like` [B, ...].

    A number is a function of its model's (key, step) and its place among the model's numbers, which
    `dnnsuite.ops.reference.random_numbers` defines; neither other models nor threads change it.

    Args:
        rng: (key, step) of each model, int64 [B, 2].
        distribution: 'uniform' from `first` to below `second`; 'normal' with mean `first` and deviation `second`;
            'bernoulli', 1 with probability `first`; 'exponential' with rate `first`.
    """
    if tracing():
        traced: Tensor = _numbers(like, rng, distribution, first, second)
        return traced
    with below_autograd():  # it has no gradient
        result: Tensor = _numbers(like, rng, distribution, first, second)
    return result
