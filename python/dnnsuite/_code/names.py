# SPDX-License-Identifier: MIT
"""Names in code, read from its instructions: globals, attributes, texts, what is set, lines, loops and branches."""

from __future__ import annotations

import contextlib
import dis
import functools
import importlib.util
import types
from collections.abc import Iterator
from typing import Any

from .writes import codes_of

__all__ = [
    "branches",
    "content_of",
    "functions_in",
    "imports_of",
    "line_of",
    "loops_in",
    "names_of",
    "stored_attributes",
    "texts_of",
]

_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))
_BRANCHES = frozenset(name for name in dis.opmap if "JUMP" in name and "_IF_" in name and "EXC" not in name)


@functools.lru_cache(maxsize=4096)
def names_of(code: types.CodeType) -> frozenset[str]:
    """Collect the names of globals and attributes in code, and in functions inside it."""
    return frozenset(name for one in codes_of(code) for name in one.co_names)


@functools.lru_cache(maxsize=4096)
def texts_of(code: types.CodeType) -> frozenset[str]:
    """Collect the texts in code, and in functions inside it: they may be names, as in `getattr(config, "scale")`."""
    return frozenset(
        text
        for one in codes_of(code)
        for constant in one.co_consts
        for text in (constant if isinstance(constant, tuple) else (constant,))
        if isinstance(text, str)
    )


@functools.lru_cache(maxsize=4096)
def stored_attributes(code: types.CodeType) -> frozenset[str]:
    """Collect the attributes that code sets or deletes, without functions inside it."""
    steps = dis.get_instructions(code)
    return frozenset(step.argval for step in steps if step.opname in ("STORE_ATTR", "DELETE_ATTR"))


@functools.lru_cache(maxsize=4096)
def imports_of(code: types.CodeType, package: str) -> frozenset[str]:
    """Collect the names of what code of a `package` may import when it runs: modules, and what it takes from one."""
    found: set[str] = set()
    for one in codes_of(code):
        steps = [step for step in dis.get_instructions(one) if step.opname not in ("CACHE", "EXTENDED_ARG")]
        for number, step in enumerate(steps):
            if step.opname == "IMPORT_NAME":
                level, names = steps[number - 2].argval, steps[number - 1].argval
                with contextlib.suppress(ImportError, TypeError, ValueError):  # outside of a package it says from where
                    name = importlib.util.resolve_name("." * int(level or 0) + str(step.argval), package)
                    found |= {name, *(f"{name}.{each}" for each in names or () if each != "*")}
        if {"import_module", "__import__"} & set(one.co_names):
            found |= {text for text in texts_of(one) if all(part.isidentifier() for part in text.split("."))}
    return frozenset(found)


@functools.lru_cache(maxsize=4096)
def branches(code: types.CodeType) -> bool:
    """Return True if code goes one way or another by a value."""
    return any(step.opname in _BRANCHES for step in dis.get_instructions(code))


@functools.lru_cache(maxsize=256)
def loops_in(code: types.CodeType) -> list[tuple[int, int]]:
    """List where the loops of a function begin and end, in its bytecode: each ends with a jump back."""
    jumps = (one for one in dis.get_instructions(code) if one.opcode in _JUMPS)
    return [(one.argval, one.offset) for one in jumps if one.argval < one.offset]


@functools.lru_cache(maxsize=4096)
def line_of(code: types.CodeType, name: str) -> int | None:
    """Find the first line of code that uses a name."""
    line = code.co_firstlineno
    for step in dis.get_instructions(code):
        line = step.starts_line if isinstance(step.starts_line, int) and step.starts_line > 1 else line
        if step.argval == name:
            return line
    return None


def content_of(cell: types.CellType, missing: Any = None) -> Any:
    """Return what a variable of an enclosing function holds; `missing` where nothing is assigned to it yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return missing


def functions_in(value: Any) -> Iterator[types.FunctionType]:
    """Yield a function, or that of a method, a property or a cached one, and what it wraps."""
    for inner in ("fget", "func", "__func__"):
        value = getattr(value, inner, None) or value
    while isinstance(value, types.FunctionType):
        yield value
        value = getattr(value, "__wrapped__", None)
