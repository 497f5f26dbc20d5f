# SPDX-License-Identifier: MIT
"""Deep copies of modules: what `copy.deepcopy` gives, in a third of the time.

A module has a dozen dictionaries, most of them empty; `copy.deepcopy` takes each through the protocol of pickle.
"""

from __future__ import annotations

import collections
import copy
import functools
import operator
import types
from typing import Any

import torch

from ..nn.array_module import ArrayModule
from ..nn.own_tensors import OwnTensors
from ..nn.sharing import SharedState

_FIXED = frozenset(
    [
        *(type(None), bool, int, float, complex, str, bytes, type, range, types.FunctionType),
        *(types.BuiltinFunctionType, torch.dtype, torch.device, torch.Size),
    ]
)
_DICTIONARIES = (dict, collections.OrderedDict)
_MISSING = object()
#: Methods by which a class says itself how it is copied.
_PROTOCOL = (
    *("__deepcopy__", "__reduce_ex__", "__reduce__", "__getstate__", "__setstate__", "__getnewargs__"),
    *("__getnewargs_ex__", "__new__", "__slots__"),
)
_PLAIN_CLASSES = (object, torch.nn.Module, SharedState, OwnTensors, ArrayModule)


def copied(value: Any, memo: dict[int, Any]) -> Any:
    """Copy `value` as `copy.deepcopy(value, memo)` does.

    `memo` has the copies of parameters: shared ones are not looked for.
    """
    kind: Any = type(value)
    if kind in _FIXED:
        return value
    known = memo.get(id(value), _MISSING)
    if known is not _MISSING:
        return known
    if kind in _DICTIONARIES:
        made = memo[id(value)] = kind()
        for key, part in value.items():
            name = key if type(key) is str else copied(key, memo)
            made[name] = part if type(part) in _FIXED else copied(part, memo)
        return made
    if kind is tuple:
        own = tuple(copied(part, memo) for part in value)
        if all(map(operator.is_, own, value)):
            return value
        return memo.setdefault(id(value), own)
    if kind is set and all(type(part) in _FIXED for part in value):
        found = memo[id(value)] = set(value)
        return found
    if kind is list:
        parts = memo[id(value)] = []
        parts.extend(copied(part, memo) for part in value)
        return parts
    if isinstance(value, torch.nn.Module) and _says_nothing(kind):
        module = memo[id(value)] = kind.__new__(kind)
        module.__setstate__(copied(value.__dict__, memo))
        return module
    return copy.deepcopy(value, memo)


@functools.lru_cache(maxsize=1024)
def _says_nothing(kind: Any) -> bool:
    """Return True for a class of modules that leaves its copies to `copy.deepcopy`."""
    return not any(
        name in vars(base)
        for base in kind.__mro__
        if base not in _PLAIN_CLASSES and not vars(base).get("_fused_copied_by_state", False)
        for name in _PROTOCOL
    )
