# SPDX-License-Identifier: MIT
"""Functions that a step's code calls by names, in the user's modules and in installed ones: a user may put another
function in the place of `torch.relu`. Functions that tell a setting of torch are called for what they tell."""

from __future__ import annotations

import functools
import types
from typing import Any

import torch
from torch.nn import functional as F

from ..._C import Guards
from ..._code import names_of
from ..._torch import methods_of_tensors
from ...nn.array_module import ArrayModule

#: Functions of torch that read a setting which a user may change between two steps.
SETTINGS = frozenset((
    torch.are_deterministic_algorithms_enabled, torch.is_deterministic_algorithms_warn_only_enabled,
    torch.get_deterministic_debug_mode, torch.get_float32_matmul_precision, torch.is_anomaly_enabled,
    torch.is_anomaly_check_nan_enabled, torch.get_default_dtype, torch.get_default_device, torch.is_warn_always_enabled,
))  # fmt: skip
_PACKAGE = __name__.partition(".")[0]
_FOLLOWED = (f"{_PACKAGE}.nn", f"{_PACKAGE}.ops", "torch.nn.")
_NO_LAYERS = frozenset((*ArrayModule.__mro__, torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ModuleDict))
_NO_STEP = frozenset(("__init__", "__setstate__", "reset_parameters", "extra_repr"))


class Bindings:
    """Functions that code calls by names of globals, of classes and of modules.

    Attributes:
        installed: those in installed packages by module and name, and all that a tensor can do: equal for code that
            calls the same.
    """

    def __init__(self) -> None:
        self._places: dict[tuple[int, str], tuple[Any, str]] = {}
        self.installed: dict[Any, Any] = {torch.Tensor: dict(methods_of_tensors)}

    def add(self, owner: Any, space: Any, name: str) -> None:
        """Remember a name in the namespace of `owner`."""
        self._places.setdefault((id(owner), name), (space, name))

    def add_installed(self, module: types.ModuleType, name: str) -> None:
        """Remember a name in a module of an installed package."""
        self.add(module, vars(module), name)
        self.installed[module.__name__, name] = vars(module)[name]

    def add_forward(self, kind: type[torch.nn.Module]) -> None:
        """Remember the forward of a layer's class, which may be an installed package's."""
        owner = next((base for base in kind.__mro__ if "forward" in vars(base)), torch.nn.Module)
        self.add(owner, vars(owner), "forward")
        self.installed[owner, "forward"] = vars(owner)["forward"]

    def guard(self, guards: Guards) -> None:
        """Guard what stands under each name, and the code of functions."""
        guards.container(methods_of_tensors, dict(methods_of_tensors))
        for space, name in self._places.values():
            guards.item(space, name)
            if isinstance(space.get(name), types.FunctionType):
                guards.attribute(space.get(name), "__code__")


@functools.lru_cache(maxsize=1024)
def functions_of_layers(kind: Any) -> tuple[tuple[types.ModuleType, str], ...]:
    """List the functions of torch, by module and name, that a layer may call, one of torch's or of an array."""
    found: dict[tuple[types.ModuleType, str], None] = {}
    waiting: list[Any] = [
        value
        for base in kind.__mro__
        if base not in _NO_LAYERS
        for name, value in vars(base).items()
        if name not in _NO_STEP
    ]
    seen: set[Any] = set()
    while waiting:
        value = waiting.pop()
        if not isinstance(value, types.FunctionType) or value in seen:
            continue
        if not str(value.__module__).startswith(_FOLLOWED):  # of code that was made it is None
            continue
        seen.add(value)
        for name in names_of(value.__code__):
            part = value.__globals__.get(name)
            if part in (torch, F):
                named = sorted(names_of(value.__code__) & vars(part).keys())
                found |= {(part, one): None for one in named if callable(vars(part)[one])}
                waiting += [vars(part)[one] for one in named]
            waiting.append(part)
    return tuple(found)
