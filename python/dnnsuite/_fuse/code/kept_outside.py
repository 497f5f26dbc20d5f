# SPDX-License-Identifier: MIT
"""Values outside of modules that their code can change: globals, closures, values of classes, objects in arguments.

A forward that has to start again, and a trial of another way, must leave nothing there; and a part of a model that
changes something there cannot run model by model inside of code for all models.
"""

from __future__ import annotations

import functools
import random
import types
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from ..._torch import hidden_from_modes
from .fused_attributes import is_fused
from .kept_contents import contents_of
from .late_draws import is_followed, names_in, reachable

_NO_VALUES = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)
_NOT_PUT_BACK = (random.Random, np.random.Generator, np.random.RandomState, torch.Generator)
_MISSING = object()
_INTERNAL = frozenset(vars(torch.nn.Module()))


class KeptOutside:
    """Values outside of the modules under `root` that a call of it, or of its `method`, can reach, with contents."""

    def __init__(self, root: torch.nn.Module, method: str = "", arguments: Sequence[Any] = ()) -> None:
        inside = set(map(id, root.modules()))
        self._bindings: dict[tuple[int, str], tuple[Any, str, Any]] = {}
        self._cells: dict[int, tuple[types.CellType, Any]] = {}
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
                    self._bindings[id(space), name] = space, name, value
            for cell in function.__closure__ or ():
                self._cells[id(cell)] = cell, _content(cell)
            values += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        all_names = set[str]().union(*(names for _, names in functions))
        for kind in kinds:
            self._class(kind, all_names)
        values += [value for _, _, value in self._bindings.values() if value is not _MISSING]
        values += [value for _, value in self._cells.values() if value is not _MISSING]
        values += _held_by_methods(arguments)
        self._modules = {
            id(one): (vars(one), users_attributes(vars(one))) for one in values if _is_outside(one, inside)
        }
        values += [value for _, held in self._modules.values() for value in held.values()]
        values += [one for one in arguments if not isinstance(one, torch.Tensor)]
        with hidden_from_modes():
            self._objects = contents_of(values)

    def _class(self, kind: type, names: set[str]) -> None:
        if not is_followed(kind.__module__):
            return
        for base in reversed(kind.__mro__):  # of a base, too: code may give the class its own
            held = vars(base)
            for name in names & held.keys():
                value = held[name]
                if isinstance(value, _NO_VALUES) or hasattr(type(value), "__get__"):
                    self._bindings.pop((id(kind), name), None)
                else:
                    self._bindings[id(kind), name] = kind, name, vars(kind).get(name, _MISSING)

    @property
    def unknown(self) -> str:
        """Name the kind of a value that cannot be put back; empty if there is none."""
        kinds = (type(one) for one in self._objects.looked_into())
        found = (kind for kind in kinds if hasattr(kind, "__next__") or issubclass(kind, _NOT_PUT_BACK))
        return next((kind.__name__ for kind in found), "")

    def changed(self) -> bool:
        """Return True if something has changed since."""
        return (
            any(_bound(space, name) is not value for space, name, value in self._bindings.values())
            or any(_content(cell) is not value for cell, value in self._cells.values())
            or any(_other(held, users_attributes(now)) for now, held in self._modules.values())
            or self._objects.changed()
        )

    def put_back(self) -> None:
        """Restore everything."""
        for space, name, value in self._bindings.values():
            if _bound(space, name) is not value:
                if isinstance(space, dict):
                    space[name] = value
                elif value is _MISSING:
                    delattr(space, name)
                else:
                    setattr(space, name, value)
        for cell, value in self._cells.values():
            if value is _MISSING and _content(cell) is not value:
                del cell.cell_contents
            elif _content(cell) is not value:
                cell.cell_contents = value
        for now, held in self._modules.values():
            for name in users_attributes(now).keys() - held.keys():
                del now[name]
            now.update(held)
        with hidden_from_modes():
            self._objects.restore()


def _is_outside(value: Any, inside: set[int]) -> bool:
    return isinstance(value, torch.nn.Module) and is_fused(value) and id(value) not in inside


def users_attributes(held: dict[str, Any]) -> dict[str, Any]:
    """Select the attributes of a module that are a user's."""
    return {name: v for name, v in held.items() if name not in _INTERNAL and not name.startswith("_fused_")}


def _other(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return a.keys() != b.keys() or any(value is not b[name] for name, value in a.items())


def _bound(space: Any, name: str) -> Any:
    return (space if isinstance(space, dict) else vars(space)).get(name, _MISSING)


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return _MISSING


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
            waiting += [_content(cell) for cell in value.__closure__ or ()]
        elif type(value) in (list, tuple):
            waiting += value
        elif type(value) is dict:
            waiting += value.values()


def _held_by_methods(arguments: Sequence[Any]) -> list[Any]:
    """List the objects of which methods are among arguments, such as the list of `outputs.append`."""
    owners = (getattr(value, "__self__", None) for value in arguments)
    return [owner for owner in owners if owner is not None and not isinstance(owner, types.ModuleType)]
