# SPDX-License-Identifier: MIT
"""Facts that decide a step's operators besides its tensors: the Python state of an array's modules."""

from __future__ import annotations

import types
from typing import Any

import torch

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


def module_facts(array: torch.nn.Module, era: object) -> tuple[Any, ...]:
    """List the Python state of every module of `array`, whatever the number of models. `era` replaces values that
    cannot be compared: they are equal in copies of one array, and may differ in another."""
    return tuple((name, *_of(module, era)) for name, module in guards.modules_of(array))


def _of(module: torch.nn.Module, era: object) -> tuple[Any, ...]:
    lists = getattr(module, "per_model_lists", ())
    values = [
        (name, _value(value, era))
        for name, value in vars(module).items()
        if _is_fact(name) and name not in lists
    ]
    recorded = module.recorded_values() if isinstance(module, ArrayModule) else ()
    return type(module), tuple(values), recorded, _one_by_one(module, era)


def _is_fact(name: str) -> bool:
    return name not in _NO_FACTS and (not name.startswith("_fused_") or name in _FUSED_FACTS)


def _one_by_one(module: torch.nn.Module, era: object) -> Any:
    """Describe the way a user's code runs: for all models at once or one by one, and with which attributes."""
    parts, report = module.__dict__.get("_fused_parts"), module.__dict__.get("_fused_report")
    return (era if parts is not None and parts.own else None), report is not None and report.reason


def _value(value: Any, era: object) -> Any:
    """Make a copy of `value` that compares equal to that of an equal value and to no other."""
    if isinstance(value, (bool, int, float, complex, str, bytes, type(None))):
        return type(value), value
    if isinstance(value, _SELF_COPIES):
        return value
    if type(value) in (list, tuple, torch.Size):
        return type(value), tuple(_value(one, era) for one in value)
    if type(value) is dict:
        return tuple((_value(name, era), _value(one, era)) for name, one in value.items())
    if type(value) in (set, frozenset) and all(isinstance(one, (str, int)) for one in value):
        return type(value), frozenset(value)
    return era
