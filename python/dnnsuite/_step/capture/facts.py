# SPDX-License-Identifier: MIT
"""Facts that decide a step's operators besides its tensors: the Python state of an array's modules."""

from __future__ import annotations

import types
from collections.abc import Collection
from typing import Any

import torch

from ..._fuse import attributes_alone, numbers_read
from ...nn.array_module import ArrayModule
from . import guards

_SELF_COPIES = (
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.ModuleType,
    torch.dtype,
    torch.device,
)
_NO_FACTS = (frozenset(vars(torch.nn.Module())) - {"training"}) | {"_root", "_plain", "_last_setting", "B"}
#: Of an array's own bookkeeping, `_fused_...`, the attributes that a step depends on; `_one_by_one` tells of others.
_FUSED_FACTS = frozenset(("_fused_code", "_fused_withheld"))


def module_facts(
    array: torch.nn.Module, era: object, without: Collection[tuple[int, str]] = ()
) -> tuple[Any, ...]:
    """List the Python state of every module of `array`, whatever the number of models.

    Args:
        era: replaces values that cannot be compared: they are equal in copies of one array, and may differ in another.
        without: (number of the module, name) of attributes that are left out.
    """
    facts = _Facts(era)
    return tuple(
        (name, *_of(module, facts, {key for own, key in without if own == number}))
        for number, (name, module) in enumerate(guards.modules_of(array))
    )


def _of(module: torch.nn.Module, facts: _Facts, without: Collection[str]) -> tuple[Any, ...]:
    left_out = {*getattr(module, "per_model_lists", ()), *without}
    values = [
        (name, facts.of(value))
        for name, value in vars(module).items()
        if _is_fact(name) and name not in left_out
    ]
    values += [("", facts.of(hook)) for hook in guards.hooks_of(module)]
    recorded = module.recorded_values() if isinstance(module, ArrayModule) else ()
    return type(module), tuple(values), recorded, numbers_read(module), _one_by_one(module, facts.era)


def _is_fact(name: str) -> bool:
    return name not in _NO_FACTS and (not name.startswith("_fused_") or name in _FUSED_FACTS)


def _one_by_one(module: torch.nn.Module, era: object) -> Any:
    """Describe the way a user's code runs: for all models at once or one by one, and with which attributes."""
    parts, report = module.__dict__.get("_fused_parts"), module.__dict__.get("_fused_report")
    return (era if parts is not None and parts.own else None), report is not None and report.reason


class _Facts:
    """Copies of values that compare equal to those of equal values and to no other."""

    def __init__(self, era: object) -> None:
        self.era = era
        self._objects: dict[int, Any] = {}  # that modules share, as they do a configuration

    def of(self, value: Any) -> Any:
        """Make such a copy of `value`."""
        if isinstance(value, (bool, int, float, complex, str, bytes, type(None))):
            return type(value), value
        if isinstance(value, _SELF_COPIES):
            return value
        if type(value) in (list, tuple, torch.Size):
            return type(value), tuple(map(self.of, value))
        if type(value) is dict:
            return tuple((self.of(name), self.of(one)) for name, one in value.items())
        if type(value) in (set, frozenset) and all(isinstance(one, (str, int)) for one in value):
            return type(value), frozenset(value)
        if id(value) not in self._objects:
            self._objects[id(value)] = self.era  # of one that holds itself
            held = attributes_alone(value)
            self._objects[id(value)] = self.era if held is None else (type(value), *map(self.of, held))
        return self._objects[id(value)]
