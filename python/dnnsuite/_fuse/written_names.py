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
    """Collect the names in every method, constructors aside, that stores, or calls what may write in place.

    A wrong "written" costs memory only.
    """
    kinds: set[Any] = {type(module) for module in modules}
    return frozenset().union(*map(_written_by, kinds))


@functools.lru_cache(maxsize=1024)
def _written_by(kind: Any) -> frozenset[str]:
    found: set[str] = set()
    for base in kind.__mro__:
        if base in (torch.nn.Module, object):
            continue
        for name, value in vars(base).items():
            function = getattr(value, "fget", None) or getattr(value, "__wrapped__", None) or value
            if name != "__init__" and isinstance(function, types.FunctionType):
                for code in _codes(function.__code__):
                    found |= _written_in(code)
    return frozenset(found)


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
