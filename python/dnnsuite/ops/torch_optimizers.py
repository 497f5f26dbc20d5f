# SPDX-License-Identifier: MIT
"""Optimizers of torch and of others on an array's parameters: steps that are not of single numbers are refused.

SGD, Adam and most others change each number by its own gradient, so they train every model by itself. LBFGS searches
along one line for all models, and Adafactor and Muon compute with rows and columns, one of which is B. Steps of other
classes (LAMB's norm of a parameter, SAM's of all gradients) are tried before the first.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch

from .._torch import before_each_step, uncompiled
from ..errors import InvalidArgument
from . import array_layers
from .decay_groups import warn_of_dimensions
from .optimizer_trial import coupling

_JOINT = tuple(getattr(torch.optim, name) for name in ("LBFGS", "Adafactor", "Muon") if hasattr(torch.optim, name))

#: Optimizers of others' classes that were tried, and how many groups they had.
_tried: weakref.WeakKeyDictionary[torch.optim.Optimizer, int] = weakref.WeakKeyDictionary()


def take_over() -> None:
    """Refuse optimizers whose steps would couple models, from now on."""
    before_each_step(_check)
    original = torch.optim.Optimizer.add_param_group
    if not hasattr(original, "looks_for_arrays"):
        torch.optim.Optimizer.add_param_group = _looking(original)  # type: ignore[method-assign]


def takes_joint_steps(optimizer: Any) -> bool:
    """Return True for an optimizer of torch's whose step of a number depends on other numbers."""
    return isinstance(optimizer, _JOINT)


def _looking(original: Callable[..., Any]) -> Callable[..., Any]:
    plain = uncompiled(original)

    @functools.wraps(original)
    def add_param_group(self: torch.optim.Optimizer, param_group: dict[str, Any]) -> None:
        plain(self, param_group)
        if len(self.param_groups) > 1:
            warn_of_dimensions(self.param_groups)

    add_param_group.__dict__["looks_for_arrays"] = True
    return add_param_group


def _try(optimizer: torch.optim.Optimizer) -> None:
    """Refuse an optimizer of another's class whose steps couple models, or mind that an array's parameters have one
    dimension more: before its first step, and after groups were added."""
    kind, groups = type(optimizer), len(optimizer.param_groups)
    if _tried.get(optimizer) == groups or not _is_of_others(kind):
        return
    _tried[optimizer] = groups
    if not array_layers.has_any(p for group in optimizer.param_groups for p in group["params"]):
        return
    why = coupling(optimizer)
    if why:
        raise InvalidArgument(
            f"a step of {kind.__name__}{', ' if why.startswith('tried') else ' '}{why}: use an optimizer of "
            f"dnnsuite.optim, or one {kind.__name__} for each model of dnnsuite.unfuse(array); if its code minds "
            f"dimension 0, set {kind.__name__}.keeps_models_apart = True"
        )


def _is_of_others(kind: type) -> bool:
    ours = any(base.__module__.partition(".")[0] == "dnnsuite" for base in kind.__mro__)
    torchs = kind.__module__.startswith("torch.optim")
    return not (ours or torchs or getattr(kind, "keeps_models_apart", False))


def _check(optimizer: Any, args: Any, kwargs: Any) -> None:
    if not takes_joint_steps(optimizer):
        _try(optimizer)
        return
    if array_layers.has_any(p for group in optimizer.param_groups for p in group["params"]):
        name = type(optimizer).__name__
        raise InvalidArgument(
            f"torch.optim.{name} would take one step for all models of an array together: use dnnsuite.optim.{name}, "
            f"or one {name} for each model of dnnsuite.unfuse(array)"
        )
