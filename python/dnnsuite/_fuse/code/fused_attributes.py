# SPDX-License-Identifier: MIT
"""Attributes that an array adds to its copy of a user's module."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import NoneType
from typing import Any

import torch
import torch.fx
from torch.nn.utils import parametrize

ASKED = "requested"  # by the user, as the reason why models run one by one
#: Types of values that are copied by assigning them, and compared by `==`.
PLAIN_VALUES = (bool, int, float, complex, str, bytes, type(None))


class ModuleCoverage:
    """Notes for `coverage` on a user's module: functions without a rule, and why its models run one by one."""

    def __init__(self) -> None:
        self.asked = False  # for a number that was the same in all models: next time it may not be
        self.reason = ""  # why the models run one by one; empty: they do not
        self.alone = ""  # what was asked of models that are shards of their own, and has an answer there alone
        self.mapped: Counter[str] = Counter()
        self.seconds = 0.0  # spent in what was not fused
        self.calls = 0


#: Attributes of an array's copy of a user's module, whose names are such that no user has them: with what each begins.
BEGIN: dict[str, Callable[[], Any]] = {
    "_fused_B": int,  # the models
    "_fused_report": ModuleCoverage,
    "_fused_code": bool,  # False: the class says `array_forward`, and its forward is for `[B, ...]`
    "_fused_parts": NoneType,  # `ModelParts`, once the models run one by one
    "_fused_known": set,  # methods, and modes, in which its code has run for all models at once
    "_fused_writing": dict,  # by method: its code may write into parameters
    "_fused_withheld": frozenset,  # attributes that differ from model to model: each of `_parts` has its own
    "_fused_own": NoneType,  # by model, values of attributes that differ, at once with the others; `own_values.py`
    "_fused_numbers": frozenset,  # those of them that are numbers, and that its code may read
    "_fused_making": bool,  # each model gets its own of the tensors that the code makes
    "_fused_unsure": bool,  # its code may draw numbers in a way that makes it begin anew
    "_fused_outward": NoneType,  # it refers to modules of the array that are not in it; None: not looked yet
    "_fused_elsewhere": bool,  # its code may draw from Python's or NumPy's generators
    "_fused_acts": bool,  # its code changes objects that modules hold
    "_fused_acts_outside": bool,  # its last call that was looked at has changed something outside of the module
    "_fused_looking": set,  # methods whose code may look at values in a branch that was not taken yet
    "_fused_changed": dict,  # by method: buffers that its first run changed
    "_fused_written": dict,  # by attribute: how often it was set from outside
    "_fused_last": NoneType,  # attributes that were kept before the last call
    "_fused_ranks": dict,  # of the tensors `[B, ...]` that it holds itself
    "_fused_sparse": frozenset,  # attributes that are sparse buffers of each model
}
#: The names of these, and of one that is made late.
INTERNAL = (*BEGIN, "_fused_draws")
#: Attributes that are torch's or an array's, and no user's.
NO_ATTRIBUTES = frozenset((*vars(torch.nn.Module()), *INTERNAL))


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
