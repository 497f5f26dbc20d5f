# SPDX-License-Identifier: MIT
"""Code that makes names of attributes as it runs: `getattr(self, f"layer{number}")`, `vars(config)`."""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Sequence

_BY_NAME = frozenset(("getattr", "hasattr"))
_ALL = frozenset(("vars", "__dict__", "attrgetter", "asdict", "astuple", "__getattribute__", "getmembers", "deepcopy"))
_CALLS = ("PRECALL", "CALL", "CALL_FUNCTION")


class AnyNames:
    """Names that a function's code, and functions inside it, may make.

    Attributes:
        all: any name.
        pieces: parts of names; a name that is made has one of them in it.
    """

    def __init__(self, code: types.CodeType) -> None:
        self.all = not _ALL.isdisjoint(code.co_names)
        self.pieces: set[str] = set()
        steps = [step for step in dis.get_instructions(code) if step.opname != "CACHE"]
        for number, step in enumerate(steps):
            if step.argval in _BY_NAME and step.opname.startswith("LOAD_"):
                self._named(steps[number + 1 :])
        for inner in code.co_consts:
            if isinstance(inner, types.CodeType):
                own = any_names(inner)
                self.all, self.pieces = self.all or own.all, self.pieces | own.pieces

    def __bool__(self) -> bool:
        return self.all or bool(self.pieces)

    def has(self, name: str) -> bool:
        """Return True if `name` may be made."""
        return self.all or any(piece in name for piece in self.pieces)

    def _named(self, steps: Sequence[dis.Instruction]) -> None:
        """Note the name in a call of `getattr`, which begins with `steps`: its second argument."""
        for number, step in enumerate(steps):
            if step.opname in _CALLS and step.arg in (2, 3):
                last = number - (1 if step.arg == 2 else 2)  # before it stands a default, loaded by one step
                if steps[last].opname == "LOAD_CONST" and isinstance(steps[last].argval, str):
                    return  # a name like others in the code
                if steps[last].opname == "BUILD_STRING":
                    parts = [one.argval for one in steps[:last] if one.opname == "LOAD_CONST"]
                    found = {part for part in parts if isinstance(part, str) and part}
                    self.pieces |= found
                    self.all = self.all or not found
                    return
                break
        self.all = True


@functools.lru_cache(maxsize=4096)
def any_names(code: types.CodeType) -> AnyNames:
    """Find the names that code may make, once for each code."""
    return AnyNames(code)
