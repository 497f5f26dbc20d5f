# SPDX-License-Identifier: MIT
"""Random numbers of plain models: layers that draw from the array's streams, and detection of other draws."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ..._torch import TorchDispatchMode


class Draws(TorchDispatchMode):
    """Dispatch mode that notes whether an operator draws from torch's generator."""

    drew = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.drew = self.drew or torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **(kwargs or {}))


@contextmanager
def generator_back(draws: Draws) -> Iterator[None]:
    """Context manager: put torch's generators back if an operator drew from them; other threads may be using them."""
    state_before = torch.get_rng_state()
    on_gpus = gpu_generators()
    try:
        yield
    finally:
        if draws.drew:
            torch.set_rng_state(state_before)
            put_gpu_generators_back(on_gpus)


class _Drawing:
    """Mix-in of a layer of one model that draws the random numbers of the array's layer."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        layer = self.__dict__["_fused_layer"]
        layer.training = self.training  # type: ignore[attr-defined]
        result: torch.Tensor = layer(x.unsqueeze(0)).squeeze(0)
        return result


_classes: dict[Any, Any] = {}


def draw_as(owner: Any, layer: Any) -> None:
    """Let torch's layer `owner` draw the numbers of `layer`, an array of one."""
    original = type(owner)
    owner.__dict__["_fused_layer"] = layer
    if issubclass(original, _Drawing):
        return
    if original not in _classes:
        _classes[original] = type(original.__name__, (_Drawing, original), {"__module__": original.__module__})
    owner.__class__ = _classes[original]


def gpu_generators() -> list[torch.Tensor]:
    """Return the states of the generators of all GPUs; empty while no GPU is in use by this process."""
    return torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []


def put_gpu_generators_back(states: Sequence[torch.Tensor]) -> None:
    """Set the generators of all GPUs to what :func:`gpu_generators` has returned."""
    if states:
        torch.cuda.set_rng_state_all(states)
