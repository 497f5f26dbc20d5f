# SPDX-License-Identifier: MIT
"""Layers of arrays that exist now, whose parameters are `[B, ...]`."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

_layers: weakref.WeakValueDictionary[int, torch.nn.Module] = weakref.WeakValueDictionary()


class _Here(threading.local):
    forwards = 0  # of arrays that run on this thread, inside one another
    of_one = False  # tensors on this thread are those of one model


here = _Here()


@contextmanager
def of_one_model() -> Iterator[None]:
    """Context manager: no tensor that is asked for on this thread is a parameter of an array, and no layer is looked
    at for that."""
    before, here.of_one = here.of_one, True
    try:
        yield
    finally:
        here.of_one = before


def add(layer: torch.nn.Module) -> None:
    """Note that the parameters of `layer` are `[B, ...]`, those of B models."""
    _layers[id(layer)] = layer


def forget(layer: torch.nn.Module) -> None:
    """Note that `layer` has become one of a single model."""
    _layers.pop(id(layer), None)


def named_parameters() -> Iterator[tuple[str, torch.nn.Parameter]]:
    """Yield the layers' own names of their parameters, and these; one that several hold is there several times."""
    for reference in _layers.valuerefs():
        layer = reference()
        for name, parameter in () if layer is None else layer.__dict__.get("_parameters", {}).items():
            if parameter is not None:
                yield name, parameter


def parameters() -> Iterator[torch.nn.Parameter]:
    """Yield the parameters of the layers."""
    return (parameter for _, parameter in named_parameters())


def padded() -> set[int]:
    """Return the ids of parameters with room that some models do not use, as for adapters of larger rank."""
    layers: list[Any] = [layer for reference in _layers.valuerefs() if (layer := reference()) is not None]
    asked = [layer.padded_parameters() for layer in layers if hasattr(type(layer), "padded_parameters")]
    return {id(parameter) for each in asked for parameter in each}


def has_any(tensors: Iterable[torch.Tensor]) -> bool:
    """Return True if some of `tensors` are parameters of the layers."""
    wanted = {id(tensor) for tensor in tensors}
    return any(id(parameter) in wanted for parameter in parameters())


def is_parameter(tensor: torch.Tensor) -> bool:
    """Return True if `tensor` is a parameter of an array, or its `data`."""
    place, shape = tensor.data_ptr(), tensor.shape
    if not place or here.of_one:  # it has no memory
        return False
    return any(p.data_ptr() == place and p.shape == shape for p in parameters())
