# SPDX-License-Identifier: MIT
"""Changes in place of a module's lists, dictionaries and sets, which no assignment shows."""

from __future__ import annotations

import copy
from typing import Any

from .fused_attributes import PLAIN_VALUES
from .stand_in import Differs, StandInDict

_DEEP = 3  # containers in containers that are looked into


class Containers:
    """Containers of plain values among `attributes`, with a copy of their contents."""

    def __init__(self, attributes: dict[str, Any]) -> None:
        self._held = {name: value for name, value in attributes.items() if _is_plain_container(value, _DEEP)}
        self.known = copy.deepcopy(self._held)

    def holds(self, name: str) -> bool:
        """Return True if attribute `name` is a container of this kind."""
        return name in self._held

    def changed(self) -> list[str]:
        """List the names of the containers that have changed since the last call."""
        if not self._held:
            return []
        if self._held == self.known and _kinds(self._held) == _kinds(self.known):
            return []
        names = [name for name, value in self._held.items() if not _alike(value, self.known[name])]
        self.known = copy.deepcopy(self._held)
        return names


def _alike(a: Any, b: Any) -> bool:
    return bool(a == b) and _kinds(a) == _kinds(b)


def _kinds(value: Any) -> list[Any]:
    """List the types in a container: the stand-in for a number, used while a step is followed, equals the number."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [type(value), *map(_kinds, parts)]


def _is_plain_container(value: Any, depth: int) -> bool:
    if (type(value) not in (list, dict, set) and not isinstance(value, StandInDict)) or not depth:
        return False
    parts = [*value, *value.values()] if isinstance(value, dict) else value
    return all(
        isinstance(part, (*PLAIN_VALUES, Differs)) or _is_plain_container(part, depth - 1) for part in parts
    )
