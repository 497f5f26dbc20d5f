# SPDX-License-Identifier: MIT
"""Search for state of models that modules keep beside parameters and buffers."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

import torch

from ...nn.model_tensor import ModelTensor
from .guards import is_state, modules_of

_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, range)
_CODE = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)
_DEEP = 8  # containers in containers that are looked into
_OWN = ("_fused_parts", "_fused_own")  # what makes models run one by one, and values of their own


def remembers(array: torch.nn.Module) -> bool:
    """Return True if code of an array's modules may have kept something that it made of its models' tensors, as caches
    do: where another model takes the place of one, that has to go."""
    return any(_remembers(module) for _, module in modules_of(array))


def _remembers(module: torch.nn.Module) -> bool:
    own = vars(module)
    if any(own.get(name) is not None for name in _OWN):
        return True
    if any(type(value) is ModelTensor for value in own.values()):
        return True
    return not all(_is_plain(value, _DEEP) for name, value in own.items() if is_state(name, value))


def _is_plain(value: Any, depth: int) -> bool:
    """Return True for a value that holds no tensor, not in another object either."""
    if isinstance(value, (*_PLAIN, *_CODE)) or type(value) is object:
        return True
    if depth and isinstance(value, (list, tuple, set, frozenset, dict)):
        parts: Sequence[Any] = [*value.keys(), *value.values()] if isinstance(value, dict) else list(value)
        return all(_is_plain(part, depth - 1) for part in parts)
    return False
