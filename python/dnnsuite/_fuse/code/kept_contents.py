# SPDX-License-Identifier: MIT
"""Contents of objects and containers that modules hold, as they were before a forward that may have to start again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ..._state import Contents, Kept
from ...nn.model_tensor import ModelTensor, physical
from ..left_tensors import OPAQUE
from .stand_in import StandInDict

_LARGE = 2**16  # elements of a tensor that is not copied
_SYSTEM = frozenset(("logging", "threading", "_thread", "_io", "io", "weakref", "_weakrefset", "typing"))
_OF_OURS = __name__.partition(".")[0]


def contents_of(values: Iterable[Any]) -> Contents:
    """Keep all that can be reached from `values` through containers, attributes and slots, not through modules. Not to
    be kept, nor restored, where operators are recorded."""
    return Contents(values, {torch.Tensor: _tensor, StandInDict: lambda value: ()}, _is_left_alone)


def _is_left_alone(value: Any) -> bool:
    module = type(value).__module__
    return isinstance(value, OPAQUE) or module in _SYSTEM or module.startswith(_OF_OURS)


def _tensor(value: torch.Tensor) -> Iterable[Kept]:
    """Keep a tensor that is no parameter and no buffer; of one of all models also what it stands for."""
    if type(value) not in (torch.Tensor, ModelTensor) or value.is_inference():
        return
    held = physical(value)
    if type(value) is ModelTensor:
        yield Kept(lambda: value.value, value.become, lambda content: ())
    if not held.requires_grad and held.numel() <= _LARGE:
        numbers = held.clone()
        yield Kept(lambda: held._version, lambda content: held.copy_(numbers), lambda content: ())
