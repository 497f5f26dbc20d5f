# SPDX-License-Identifier: MIT
"""torch's functions that compute one result from a whole parameter, where it is that of all models of an array.

They take each model by itself, or refuse: a step or a value of all models together would silently be another one.
"""

from __future__ import annotations

import torch

from . import array_layers, torch_clip, torch_init, torch_means, torch_optimizers, torch_plateau

_taken_over = False


def register(layer: torch.nn.Module) -> None:
    """Note that the parameters of `layer` are `[B, ...]`, those of B models."""
    global _taken_over
    if not _taken_over:
        _taken_over = True
        for part in (torch_clip, torch_init, torch_means, torch_optimizers, torch_plateau):
            part.take_over()
    array_layers.add(layer)


def forget(layer: torch.nn.Module) -> None:
    """Note that `layer` has become one of a single model."""
    array_layers.forget(layer)
