# SPDX-License-Identifier: MIT
"""Changes in place of what a module holds beside plain containers: objects, tensors, arrays, tables of functions."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

from ..left_tensors import OPAQUE, parts_inside
from ..pictures import may_change_in_place, picture
from .stand_in import StandIn

_DEEP = 4  # containers and objects in one another that are looked into for functions
_FEW = 64  # elements of a container of functions


class HeldInPlace:
    """Attributes of a `module` that may change in place, `without` some, and pictures of them as they are now."""

    def __init__(self, module: torch.nn.Module, without: Collection[str] = ()) -> None:
        held = {name: value for name, value in vars(module).items() if name not in without}
        self._held = {
            name: value
            for name, value in held.items()
            if may_change_in_place(name, value) and not isinstance(value, StandIn)
        }
        self.known = self._pictures()

    def _pictures(self) -> dict[str, Any]:
        return {name: (picture(value), _functions(value, _DEEP)) for name, value in self._held.items()}

    def changed(self) -> list[str]:
        """List the names of those that have changed since the last call."""
        if not self._held:
            return []
        before, self.known = self.known, self._pictures()
        return [name for name, now in self.known.items() if now != before[name]]


def _functions(value: Any, depth: int) -> Any:
    """List functions and modules in a container or an object, by identity."""
    if isinstance(value, OPAQUE):
        return id(value)
    if not depth or isinstance(value, torch.Tensor):
        return None
    inside = list(parts_inside(value))
    return [_functions(one, depth - 1) for one in inside] if len(inside) <= _FEW else None
