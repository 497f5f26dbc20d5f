# SPDX-License-Identifier: MIT
"""Attributes that an array adds to its copy of a user's module."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
import torch.fx
from torch.nn.utils import parametrize

_NAMES = (
    "B", "acts", "acts_outside", "changed", "looking", "report", "code", "parts", "known", "withheld", "own", "numbers",
    "outward", "making", "draws", "ranks", "sparse", "unsure", "elsewhere", "written", "writing",
    "last",
)  # fmt: skip
#: Names of the attributes, which no user has.
INTERNAL = tuple(f"_fused_{name}" for name in _NAMES)

#: Types of values that are copied by assigning them, and compared by `==`.
PLAIN_VALUES = (bool, int, float, complex, str, bytes, type(None))
#: Attributes that are torch's or an array's, and no user's.
NO_ATTRIBUTES = frozenset((*vars(torch.nn.Module()), *INTERNAL))


class ModuleCoverage:
    """Notes for `coverage` on a user's module: functions without a rule, and why its models run one by one."""

    def __init__(self) -> None:
        self.asked = False  # for a number that was the same in all models: next time it may not be
        self.reason = ""  # why the models run one by one; empty: they do not
        self.alone = ""  # what was asked of models that are shards of their own, and has an answer there alone
        self.mapped: Counter[str] = Counter()
        self.seconds = 0.0  # spent in what was not fused
        self.calls = 0


def is_fused(module: Any) -> bool:
    """Return True for an array's copy of a user's module."""
    return "_fused_B" in module.__dict__


def bare_class(module: torch.nn.Module) -> type[torch.nn.Module]:
    """Return the user's class of a module of an array."""
    return getattr(type(module), "_fused_original", type(module))


def class_of_its_own(kind: Any, module: torch.nn.Module) -> Any:
    """Copy the class that torch has made for a parametrized `module` or a graph; return another's `kind` as it is.

    torch puts a property into that class, and `remove_parametrizations` takes it away: for all modules of the class; a
    graph's forward lies in it, and `recompile` sets it anew.
    """
    if isinstance(module, torch.fx.GraphModule):
        module.__class__ = type(kind)(kind.__name__, kind.__bases__, {"__module__": kind.__module__})
        module.__class__.__qualname__ = kind.__qualname__
        module.recompile()
        return type(module)
    if not parametrize.is_parametrized(module):
        return kind
    body = {name: value for name, value in vars(kind).items() if name not in ("__dict__", "__weakref__")}
    return type(kind)(kind.__name__, kind.__bases__, body)


def plain_attributes(module: torch.nn.Module) -> dict[str, Any]:
    """Collect the numbers and strings that a user's module keeps."""
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, PLAIN_VALUES) and name not in NO_ATTRIBUTES
    }
