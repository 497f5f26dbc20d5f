# SPDX-License-Identifier: MIT
"""Values outside of modules that their code can change: globals, closures, values of classes, objects in arguments.

A forward that has to start again, and a trial of another way, must leave nothing there; and a part of a model that
changes something there cannot run model by model inside of code for all models.
"""

from __future__ import annotations

import functools
import random
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from ..._code import content_of
from ..._state import Contents, Kept, keep_binding, keep_cell, keep_names
from ..._torch import hidden_from_modes
from ...nn.model_tensor import ModelTensor, physical
from ..left_tensors import OPAQUE
from .fused_attributes import is_fused
from .late_draws import is_followed, names_in, reachable
from .stand_in import StandInDict

_NO_VALUES = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)
_NOT_PUT_BACK = (random.Random, np.random.Generator, np.random.RandomState, torch.Generator)
_INTERNAL = frozenset(vars(torch.nn.Module()))


class KeptOutside:
    """Values outside of the modules under `root` that a call of it, or of its `method`, can reach, with contents."""

    def __init__(self, root: torch.nn.Module, method: str = "", arguments: Sequence[Any] = ()) -> None:
        inside = set(map(id, root.modules()))
        self._places: dict[Any, Kept] = {}
        values: list[Any] = []
        kinds = {base for module in root.modules() for base in type(module).__mro__}
        functions = reachable(root, method) + [(one, names_in(one)) for one in _functions_in(arguments)]
        for function, names in functions:
            space = function.__globals__
            for name in names & space.keys():
                value = space[name]
                if isinstance(value, type):
                    kinds.add(value)
                elif not isinstance(value, _NO_VALUES):
                    self._places[id(space), name] = keep_binding(space, name)
            for cell in function.__closure__ or ():
                self._places[id(cell)] = keep_cell(cell)
            values += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        all_names = set[str]().union(*(names for _, names in functions))
        for kind in kinds:
            self._class(kind, all_names)
        kept = list(self._places.values())
        values += [value for one in kept for value in one.parts]
        values += _held_by_methods(arguments)
        modules = {id(one): one for one in values if _is_outside(one, inside)}.values()
        kept += [keep_names(vars(one), _is_a_users) for one in modules]
        values += [value for one in kept[-len(modules) :] for value in one.parts] if modules else []
        values += [one for one in arguments if not isinstance(one, torch.Tensor)]
        with hidden_from_modes():
            self._objects = contents_of(values)
        self._objects.add(kept)

    def _class(self, kind: type, names: set[str]) -> None:
        if not is_followed(kind.__module__):
            return
        for base in reversed(kind.__mro__):  # of a base, too: code may give the class its own
            held = vars(base)
            for name in names & held.keys():
                value = held[name]
                if isinstance(value, _NO_VALUES) or hasattr(type(value), "__get__"):
                    self._places.pop((id(kind), name), None)
                else:
                    self._places[id(kind), name] = keep_binding(kind, name)

    @property
    def unknown(self) -> str:
        """Name the kind of a value that cannot be put back; empty if there is none."""
        kinds = (type(one) for one in self._objects.looked_into())
        found = (kind for kind in kinds if hasattr(kind, "__next__") or issubclass(kind, _NOT_PUT_BACK))
        return next((kind.__name__ for kind in found), "")

    def changed(self) -> bool:
        """Return True if something has changed since."""
        return self._objects.changed()

    def put_back(self) -> None:
        """Restore everything."""
        with hidden_from_modes():
            self._objects.restore()


def _is_outside(value: Any, inside: set[int]) -> bool:
    return isinstance(value, torch.nn.Module) and is_fused(value) and id(value) not in inside


def users_attributes(held: dict[str, Any]) -> dict[str, Any]:
    """Select the attributes of a module that are a user's."""
    return {name: value for name, value in held.items() if _is_a_users(name, value)}


def _is_a_users(name: str, value: Any) -> bool:
    return name not in _INTERNAL and not name.startswith("_fused_")


def _functions_in(arguments: Sequence[Any]) -> Iterator[types.FunctionType]:
    """Yield the Python functions among arguments, and those that they close over."""
    waiting, seen = list(arguments), set[int]()
    while waiting:
        value = waiting.pop()
        value = getattr(value, "__func__", value)
        if isinstance(value, functools.partial):
            waiting += [value.func, *value.args, *value.keywords.values()]
        elif isinstance(value, types.FunctionType) and id(value) not in seen:
            seen.add(id(value))
            yield value
            waiting += [content_of(cell) for cell in value.__closure__ or ()]
        elif type(value) in (list, tuple):
            waiting += value
        elif type(value) is dict:
            waiting += value.values()


def _held_by_methods(arguments: Sequence[Any]) -> list[Any]:
    """List the objects of which methods are among arguments, such as the list of `outputs.append`."""
    owners = (getattr(value, "__self__", None) for value in arguments)
    return [owner for owner in owners if owner is not None and not isinstance(owner, types.ModuleType)]


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
