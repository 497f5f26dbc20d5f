# SPDX-License-Identifier: MIT
"""Names of attributes that a model's code may write into: buffers of that name are each model's own."""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Iterable, Iterator
from typing import Any

import torch

#: Functions that write into buffers that they are given.
_WRITING = frozenset({"batch_norm", "instance_norm", "register_buffer", "setattr"})


def written_names(modules: Iterable[torch.nn.Module]) -> frozenset[str]:
    """Collect the names in every method that a forward may reach, if it stores, or calls what may write in place.

    A wrong "written" costs memory only.
    """
    methods = _methods(frozenset(type(module) for module in modules))
    waiting, seen, found = ["forward", "__call__"], {"forward", "__call__"}, set[str]()
    while waiting:
        for code in methods.get(waiting.pop(), ()):
            found |= _written_in(code)
            new = {*code.co_names, *_texts(code.co_consts)} & methods.keys() - seen
            seen |= new
            waiting += new
    return frozenset(found)


@functools.lru_cache(maxsize=64)
def _methods(kinds: frozenset[Any]) -> dict[str, list[types.CodeType]]:
    """Collect the code of the classes' methods by name, torch's own layers among them."""
    found: dict[str, list[types.CodeType]] = {}
    for base in {base for kind in kinds for base in kind.__mro__} - {torch.nn.Module, object}:
        for name, value in vars(base).items():
            for function in _functions(value):
                found.setdefault(name, []).extend(_codes(function.__code__))
    return found


def _functions(value: Any) -> Iterator[types.FunctionType]:
    """Yield a function, the getter of a property, and what they wrap."""
    value = getattr(value, "fget", None) or getattr(value, "__func__", None) or value
    while isinstance(value, types.FunctionType):
        yield value
        value = getattr(value, "__wrapped__", None)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _written_in(code: types.CodeType) -> set[str]:
    steps = list(dis.get_instructions(code))
    stored = {step.argval for step in steps if step.opname == "STORE_ATTR"}
    names = set(code.co_names)
    texts = {text for constant in code.co_consts for text in _texts(constant)}
    writes = (
        any(name.endswith("_") and not name.endswith("__") for name in names)
        or any(step.opname == "STORE_SUBSCR" for step in steps)
        or not names.isdisjoint(_WRITING)
        or "out" in texts
    )
    return stored | names | texts if writes else stored


def _texts(constant: Any) -> Iterator[str]:
    for text in constant if isinstance(constant, tuple) else (constant,):
        if isinstance(text, str):
            yield text
