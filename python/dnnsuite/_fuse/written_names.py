# SPDX-License-Identifier: MIT
"""Names of attributes in the code that a forward may reach: those that it reads, stores, or may write into."""

from __future__ import annotations

import contextlib
import dis
import functools
import types
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch

from .._code import codes_of, functions_in, stored_attributes, texts_of

#: Functions that write into buffers that they are given.
_WRITING = frozenset({"batch_norm", "instance_norm", "register_buffer", "setattr"})
_KINDS = frozenset({"isinstance", "type", "is_tensor"})
#: Functions that set or delete attributes by their names.
_SETTING = frozenset({"setattr", "delattr", "__setattr__", "__delattr__"})


#: Methods that are called from outside, or by what a module's functions call.
_ENTRIES = frozenset({"forward", "__call__", "training_step", "validation_step"})


class CodeNames(NamedTuple):
    """Names of attributes in code; what is a text there may be one, too.

    `beside_types` are those in functions that ask for the types of values.
    """

    read: frozenset[str]
    stored: frozenset[str]
    beside_types: frozenset[str]


def written_names(modules: Iterable[torch.nn.Module]) -> frozenset[str]:
    """Collect the names in every method that a forward may reach, if it stores, or calls what may write in place.

    A wrong "written" costs memory only.
    """
    codes = _reachable(frozenset(type(module) for module in modules), frozenset(("forward", "__call__")))
    return frozenset().union(*map(_written_in, codes))


def names_in_code(modules: Iterable[torch.nn.Module], held: bool = True) -> CodeNames:
    """Collect the names in every method that a forward may reach.

    Args:
        held: functions that modules hold, as a loss, are such code, and call methods.
    """
    parts = list(modules)
    values = [value for part in parts for value in vars(part).values()] if held else []
    codes = {
        code
        for value in values
        for function in _held_functions(value)
        for code in codes_of(function.__code__)
    }
    entries = _ENTRIES.union(*({*code.co_names, *texts_of(code)} for code in codes))
    found = _names(frozenset(type(part) for part in parts), entries)
    own = _names_of(codes)
    return CodeNames(*(a | b for a, b in zip(found, own, strict=True)))


@functools.lru_cache(maxsize=1024)
def _names(kinds: frozenset[Any], entries: frozenset[str]) -> CodeNames:
    return _names_of(_reachable(kinds, entries))


def _names_of(codes: Iterable[types.CodeType]) -> CodeNames:
    read, stored, beside_types = set[str](), set[str](), set[str]()
    for code in codes:
        texts = texts_of(code)
        names = {*code.co_names, *texts}
        read |= names
        stored |= stored_attributes(code) | (texts if not _SETTING.isdisjoint(code.co_names) else set())
        beside_types |= set() if _KINDS.isdisjoint(code.co_names) else names
    return CodeNames(frozenset(read), frozenset(stored), frozenset(beside_types))


@functools.lru_cache(maxsize=64)
def _reachable(kinds: frozenset[Any], entries: frozenset[str]) -> list[types.CodeType]:
    """List the code of the methods of these classes that have the name of an entry, or one in such code."""
    methods = _methods(kinds)
    waiting, seen = list(entries), set(entries)
    found: list[types.CodeType] = []
    while waiting:
        for code in methods.get(waiting.pop(), ()):
            found.append(code)
            new = {*code.co_names, *texts_of(code)} & methods.keys() - seen
            seen |= new
            waiting += new
    return found


@functools.lru_cache(maxsize=64)
def _methods(kinds: frozenset[Any]) -> dict[str, list[types.CodeType]]:
    """Collect the code of the classes' methods by name, torch's own layers among them."""
    found: dict[str, list[types.CodeType]] = {}
    for base in {base for kind in kinds for base in kind.__mro__} - {torch.nn.Module, object}:
        for name, value in vars(base).items():
            for function in functions_in(value):
                found.setdefault(name, []).extend(codes_of(function.__code__))
    return found


def _held_functions(value: Any) -> Iterator[types.FunctionType]:
    """Yield the function that an attribute is or binds, and those in its closure."""
    if isinstance(value, functools.partial):
        yield from _held_functions(value.func)
    elif isinstance(value, (types.FunctionType, types.MethodType)):
        for function in functions_in(value):
            yield function
            for cell in function.__closure__ or ():
                with contextlib.suppress(ValueError):  # not assigned yet
                    held = cell.cell_contents
                    yield from (
                        functions_in(held) if isinstance(held, types.FunctionType | types.MethodType) else ()
                    )


@functools.lru_cache(maxsize=4096)
def _written_in(code: types.CodeType) -> frozenset[str]:
    steps, stored = dis.get_instructions(code), stored_attributes(code)
    names, texts = set(code.co_names), texts_of(code)
    writes = (
        any(name.endswith("_") and not name.endswith("__") for name in names)
        or any(step.opname == "STORE_SUBSCR" for step in steps)
        or not names.isdisjoint(_WRITING)
        or "out" in texts
    )
    return stored | names | texts if writes else stored
