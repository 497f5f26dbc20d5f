# SPDX-License-Identifier: MIT
"""Outputs of models that ran one by one, joined into those of all; records that hold tensors."""

from __future__ import annotations

import copy
import dataclasses
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..._torch import tree_flatten, tree_unflatten
from ...nn.model_tensor import ModelTensor, NotFusable


class OfEachModel(list[Any]):
    """Objects of the models that cannot be joined, a cache for example, one of each. As an argument of a later call
    of models one by one, each gets its own."""


def joined(outputs: Sequence[Any], wrap: Callable[[torch.Tensor], Any]) -> Any:
    """Stack the outputs of the models, tensor by tensor; `wrap` is called on each stack `[B, ...]`.

    Raises:
        NotFusable: for outputs of different structure, shape or value.
    """
    if all(isinstance(output, torch.Tensor) for output in outputs):
        return wrap(_stacked(outputs))
    flat = [tree_flatten(output) for output in outputs]
    for index, (_, spec) in enumerate(flat):
        if spec != flat[0][1]:
            raise NotFusable(f"models 0 and {index} give outputs of different structure")
    leaves = zip(*(leaves for leaves, _ in flat), strict=True)
    return tree_unflatten([_leaf(own, wrap) for own in leaves], flat[0][1])


def _stacked(values: Sequence[Any]) -> torch.Tensor:
    values = [value.value if type(value) is ModelTensor else value for value in values]
    for index, value in enumerate(values):
        if value.shape != values[0].shape:
            raise NotFusable(
                f"models 0 and {index} give outputs of different shape: {list(values[0].shape)} and {list(value.shape)}"
            )
    return torch.stack(values)


def _leaf(values: Sequence[Any], wrap: Callable[[torch.Tensor], Any]) -> Any:
    first = values[0]
    if any(isinstance(value, torch.Tensor) for value in values):
        return wrap(_stacked(values))
    if is_record(first) or isinstance(first, torch.distributions.Distribution):
        return _object(values, wrap)
    for index, value in enumerate(values):
        if value is not first and type(value).__eq__ is not object.__eq__ and value != first:
            raise NotFusable(f"models 0 and {index} give different outputs: {first!r} and {value!r}")
    # Objects that cannot be compared, a cache for example, stay each model's own.
    opaque = first is not None and type(first).__eq__ is object.__eq__
    return OfEachModel(values) if opaque else first


def _object(values: Sequence[Any], wrap: Callable[[torch.Tensor], Any]) -> Any:
    """Join objects attribute by attribute."""
    made = copy.copy(values[0])
    for name in vars(made):
        object.__setattr__(made, name, joined([getattr(value, name) for value in values], wrap))
    return made


def is_record(value: Any) -> bool:
    """Return True for a dataclass's object, or a namespace."""
    return type(value) is types.SimpleNamespace or (dataclasses.is_dataclass(value) and not isinstance(value, type))


def names_of_record(value: Any) -> tuple[str, ...]:
    """Name the fields of a record that have a value."""
    if type(value) is types.SimpleNamespace:
        return tuple(vars(value))
    return tuple(field.name for field in dataclasses.fields(value) if hasattr(value, field.name))
