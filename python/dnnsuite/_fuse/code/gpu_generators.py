# SPDX-License-Identifier: MIT
"""The random generators of all GPUs: models may lie on another than the current one."""

from __future__ import annotations

from collections.abc import Sequence

import torch

__all__ = ["gpu_generators", "put_gpu_generators_back"]


def gpu_generators() -> list[torch.Tensor]:
    """Return the states of the generators of all GPUs; empty while no GPU is in use by this process."""
    return torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []


def put_gpu_generators_back(states: Sequence[torch.Tensor]) -> None:
    """Set the generators of all GPUs to what :func:`gpu_generators` has returned."""
    if states:
        torch.cuda.set_rng_state_all(states)
