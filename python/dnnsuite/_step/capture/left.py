# SPDX-License-Identifier: MIT
"""Tensors that a step leaves in attributes of modules, such as a map of attention or a loss beside the main one.

A replay computes them as the step does, and puts them where its code would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from ...nn.model_tensor import ModelTensor
from .guards import is_state, modules_of

Place = tuple[int, str]  # number of the module among those of the array, and name of the attribute


def tensors_left(array: torch.nn.Module) -> dict[Place, ModelTensor]:
    """Collect the tensors of all models that code has left in attributes."""
    return {
        (number, name): value
        for number, (_, module) in enumerate(modules_of(array))
        for name, value in vars(module).items()
        if type(value) is ModelTensor and is_state(name, None)
    }


def newly_left(array: torch.nn.Module, before: Mapping[Place, ModelTensor]) -> dict[Place, torch.Tensor]:
    """Collect those that were not there `before`, each `[B, ...]`."""
    now = tensors_left(array).items()
    return {place: tensor.value.detach() for place, tensor in now if before.get(place) is not tensor}


def put_back(array: torch.nn.Module, before: Mapping[Place, ModelTensor]) -> None:
    """Leave in attributes what was there `before`, and nothing else."""
    modules: list[Any] = [vars(module) for _, module in modules_of(array)]
    for number, name in tensors_left(array).keys() - before.keys():
        del modules[number][name]
    for (number, name), tensor in before.items():
        modules[number][name] = tensor


def leave_in(array: torch.nn.Module) -> Callable[[Iterable[tuple[Place, torch.Tensor]]], None]:
    """Make a function that leaves tensors `[B, ...]` in the attributes of an array."""
    modules: list[Any] = [vars(module) for _, module in modules_of(array)]

    def leave(found: Iterable[tuple[Place, torch.Tensor]]) -> None:
        for (number, name), tensor in found:
            modules[number][name] = ModelTensor(tensor)

    return leave
