# SPDX-License-Identifier: MIT
"""Random numbers of each model from its own stream: on a CPU by the library, on a GPU by a kernel in Triton."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from .device import on_cpu, triton_runs
from .library import below_autograd, fakes_like, library, tracing, transforming

_numbers = library.random_numbers.default
_OWN = (torch.float32, torch.float64)


fakes_like("like", "random_numbers")


def _on_a_gpu(like: Tensor, rng: Tensor, distribution: str, first: float, second: float) -> Tensor:
    from ._triton_random import random_numbers as by_triton

    return by_triton(like, rng, distribution, first, second)


_library = torch.library.Library("dnnsuite", "IMPL")
_library.impl("random_numbers", _on_a_gpu, "CUDA")


def draws_numbers(like: Tensor, rng: Tensor) -> bool:
    """Return True if `random_numbers(like, rng, ...)` may be called: for float32 and float64, both on a CPU, or both on
    a GPU for which Triton compiles."""
    if like.dtype not in _OWN or like.dim() == 0 or transforming():
        return False
    if like.is_cuda:
        return rng.device == like.device and _compiles(like.device)
    return on_cpu(like) and on_cpu(rng)


@cache
def _compiles(device: torch.device) -> bool:
    def one() -> Tensor:
        rng = torch.zeros(1, 2, dtype=torch.int64, device=device)
        return _on_a_gpu(torch.empty(1, 1, device=device), rng, "uniform", 0, 1)

    return triton_runs(one)


def random_numbers(like: Tensor, rng: Tensor, distribution: str, first: float, second: float = 0.0) -> Tensor:
    """Draw numbers for each model into a new contiguous tensor of the shape and dtype of `like` [B, ...].

    A number is a function of its model's (key, step) and its place among the model's numbers, which
    `cpp/fused/README.md` defines; neither other models nor threads change it.

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
