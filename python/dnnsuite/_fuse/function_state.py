# SPDX-License-Identifier: MIT
"""Functions that keep state between calls: closure variables that they set, containers that they change."""

from __future__ import annotations

import collections
import dis
import functools
import types
from typing import Any

_CONTAINERS = (list, dict, set, bytearray, collections.deque)
_CHANGING = frozenset(
    [
        *("append", "appendleft", "add", "extend", "update", "insert", "setdefault", "sort", "reverse"),
        *("rotate", "pop", "popleft", "popitem", "remove", "discard", "clear"),
    ]
)
_WRITES = frozenset(("STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE"))
_SETS = frozenset(("STORE_DEREF", "DELETE_DEREF"))


def keeps_state(function: types.FunctionType) -> bool:
    """Return True if a call may leave something in the function that the next one sees."""
    sets, changes = _done_by(function.__code__)
    return sets or (changes and any(isinstance(value, _CONTAINERS) for value in _held_by(function)))


def share_state(a: types.FunctionType, b: types.FunctionType) -> bool:
    """Return True if two functions keep state in the same place: variables of one closure, the same containers."""
    both = (
        [*(f.__closure__ or ()), *(f.__defaults__ or ()), *(f.__kwdefaults__ or {}).values()] for f in (a, b)
    )
    return all(x is y for x, y in zip(*both, strict=True))


def _held_by(function: types.FunctionType) -> list[Any]:
    held = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    for cell in function.__closure__ or ():
        try:
            held.append(cell.cell_contents)
        except ValueError:  # not assigned yet
            continue
    return held


@functools.lru_cache(maxsize=4096)
def _done_by(code: types.CodeType) -> tuple[bool, bool]:
    """Tell whether code sets variables of its closure, and whether it changes containers."""
    sets = changes = False
    for one in dis.get_instructions(code):
        sets |= one.opname in _SETS and one.argval in code.co_freevars
        changes |= one.opname in _WRITES or one.argval in _CHANGING
    return sets, changes
