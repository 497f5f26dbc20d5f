# SPDX-License-Identifier: MIT
"""Stand-ins for numbers that are others in the next step: a `FollowedNumber` takes the place of one in the user's code.

To C code it is no float, so every read of its value is seen. What is done with it is carried out, and written down, by
the trace of the step (`arithmetic.py`). While a step is recorded, Python's `math` hands stand-ins on, too.
"""

from __future__ import annotations

import contextlib
import functools
import math
import operator
import threading
import types
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

NUMBERS = (int, float, np.float64)
#: Types of results that are numbers, and of numbers beside a stand-in.
KINDS = (int, float, np.float64, np.float32, np.int64)
_NUMBERS = (bool, *KINDS)


def is_number(value: Any) -> bool:
    """Return True for a number that can be followed."""
    return type(value) in NUMBERS


def plain(value: Any) -> Any:
    """Return the value of a followed number; leave anything else as it is."""
    return value.value if type(value) is FollowedNumber else value


def read(value: Any) -> Any:
    """Return the value of a followed number, which the next step must have, too; leave anything else as it is."""
    return value.trace.read(value) if type(value) is FollowedNumber else value


def _operation(function: Callable[..., Any], reflected: bool = False) -> Callable[..., Any]:
    def method(self: FollowedNumber, other: Any, *more: Any) -> Any:
        if more or type(other) not in (*_NUMBERS, FollowedNumber):
            return NotImplemented
        return self.trace.apply(function, *((other, self) if reflected else (self, other)))

    return method


def _function(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *others: self.trace.apply(function, self, *others)


def _reading(function: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda self: self.trace.read(self, function)


class FollowedNumber(torch.SymFloat):
    """Number that takes the place of another and records the operations on it. torch's functions accept it as a number,
    and `isinstance` sees the type of the number it replaces; C code has to ask for its value.
    """

    __array_priority__ = 1000

    def __init__(self, trace: Any, index: Any, value: Any) -> None:
        """`trace` carries out the operations, and knows the number as `index`."""
        self.trace, self.index, self.value = trace, index, value

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self.value)

    @property
    def node(self) -> Any:
        """Symbolic node, which torch asks for the value outside of its modes."""
        return types.SimpleNamespace(guard_float=lambda file, line: float(self), is_float=lambda: True)

    @node.setter
    def node(self, value: Any) -> None:
        raise AttributeError("node")

    def __getattribute__(self, name: str) -> Any:
        if name in _OWN or name.startswith("__"):
            return object.__getattribute__(self, name)
        return getattr(self.trace.read(self), name)

    def __copy__(self, memo: Any = None) -> FollowedNumber:
        return self

    __deepcopy__ = __copy__

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _identity, (self.trace.read(self),)

    def __format__(self, spec: str) -> str:
        return self.trace.read(self, lambda value: format(value, spec))

    def __index__(self) -> int:
        return self.trace.read(self, operator.index)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __round__(self, digits: Any = None) -> Any:
        return self.trace.apply(round, self) if digits is None else self.trace.apply(round, self, digits)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return np.asarray(self.trace.read(self), *args, **kwargs)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method == "__call__" and not kwargs and all(type(x) in (*_NUMBERS, FollowedNumber) for x in inputs):
            return self.trace.apply(ufunc, *inputs)
        return getattr(ufunc, method)(*map(read, inputs), **kwargs)

    def __array_function__(self, function: Any, kinds: Any, args: Any, kwargs: Any) -> Any:
        if not kwargs and all(type(x) in (*_NUMBERS, FollowedNumber) for x in args):
            return self.trace.apply(function, *args)
        return function(*map(read, args), **{name: read(value) for name, value in kwargs.items()})


_OWN = frozenset(("trace", "index", "value", "node"))


def _identity(value: Any) -> Any:
    return value


_TWO_SIDED = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift", "and_", "or_", "xor")
for _name in _TWO_SIDED:
    _what, _name = getattr(operator, _name), _name.rstrip("_")
    setattr(FollowedNumber, f"__{_name}__", _operation(_what))
    setattr(FollowedNumber, f"__r{_name}__", _operation(_what, reflected=True))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(FollowedNumber, f"__{_name}__", _operation(getattr(operator, _name)))
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "neg": operator.neg,
    "pos": operator.pos,
    "abs": abs,
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
    "bool": bool,
}
_READS: dict[str, Callable[..., Any]] = {"int": int, "float": float, "str": str, "repr": repr, "hash": hash}
for _name, _what in _FUNCTIONS.items():
    setattr(FollowedNumber, f"__{_name}__", _function(_what))
for _name, _what in _READS.items():
    setattr(FollowedNumber, f"__{_name}__", _reading(_what))


_MATH = {id(held) for held in vars(math).values() if isinstance(held, types.BuiltinFunctionType)}
_inside = Counter[int]()  # by namespace: threads in steps in which its functions are replaced
_replaced: dict[int, dict[str, Any]] = {}
_math_lock = threading.Lock()


@contextlib.contextmanager
def followed_in_math(spaces: Sequence[dict[str, Any]]) -> Iterator[None]:
    """Context manager: record calls of Python's `math` on followed numbers, also under the names that these namespaces
    give its functions. Threads may be inside at the same time; the last one puts the functions back."""
    each = {id(one): one for one in (vars(math), *spaces)}
    with _math_lock:
        for key, space in each.items():
            if not _inside[key]:
                _replaced[key] = {name: function for name, function in space.items() if id(function) in _MATH}
                space.update({name: _followed(function) for name, function in _replaced[key].items()})
            _inside[key] += 1
    try:
        yield
    finally:
        with _math_lock:
            for key, space in each.items():
                _inside[key] -= 1
                if not _inside[key]:
                    space.update(_replaced.pop(key))


@functools.lru_cache(256)  # Python's `math` has some fifty, and each recorded step wants them
def _followed(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not kwargs:
            for value in args:
                if type(value) is FollowedNumber:
                    return value.trace.apply(function, *args)
        return function(*args, **kwargs)

    return call
