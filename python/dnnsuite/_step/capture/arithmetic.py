# SPDX-License-Identifier: MIT
"""Arithmetic on numbers that change from step to step: traced while a step runs, and repeated for the next.

A `FollowedNumber` takes the place of a number in the user's code. To C code it is no float, so every read of its value
is seen: a read as a plain number, or a decision by it, becomes a condition of the recording.
"""

from __future__ import annotations

import contextlib
import functools
import math
import operator
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from .unseen import user_place

_FREE = object()  # a line whose value may be another one in the next step
_KINDS = (int, float, np.float64, np.float32, np.int64)
_NUMBERS = (bool, *_KINDS)


@dataclass(frozen=True)
class Ref:
    """Index of an earlier value: sources first, then lines."""

    index: int


@dataclass(frozen=True)
class Line:
    """One operation on numbers, with the type of its result, and the result itself if it is a condition."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    kind: type
    expected: Any = _FREE

    def run(self, values: Sequence[Any]) -> Any:
        value = self.function(*[values[a.index] if type(a) is Ref else a for a in self.arguments])
        if type(value) is not self.kind or (self.expected is not _FREE and not same(value, self.expected)):
            raise _OtherWay
        return value


class _OtherWay(Exception):
    """Signal that the code would take another branch, or read another value."""


def same(a: Any, b: Any) -> bool:
    """Return True for values that no code can tell apart; NaN equals NaN."""
    return type(a) is type(b) and (repr(a) == repr(b) if isinstance(a, (float, np.floating)) else bool(a == b))


NUMBERS = (int, float, np.float64)


def is_number(value: Any) -> bool:
    """Return True for a number that can be followed."""
    return type(value) in NUMBERS


def is_special(value: Any) -> bool:
    """Return True for numbers that torch treats specially, such as 0 and 1: they are conditions of a recording, not
    inputs."""
    return bool(value in (0, 1, -1) or not math.isfinite(value))


@dataclass
class Arithmetic:
    """Operations on `kinds` of numbers that a step begins with, in order."""

    kinds: tuple[type, ...]
    lines: list[Line] = field(default_factory=list)

    def values(self, begin: Sequence[Any]) -> list[Any] | None:
        """Compute all values from these numbers; None if the code would take another branch for them."""
        if tuple(map(type, begin)) != self.kinds:
            return None
        values = list(begin)
        try:
            for line in self.lines:
                values.append(line.run(values))
        except (_OtherWay, ArithmeticError, ValueError, TypeError):
            return None
        return values


class Trace:
    """Trace of a step's arithmetic; `numbers` take the place of those it begins with."""

    def __init__(self, begin: Sequence[Any]) -> None:
        self.begin = list(begin)
        self.arithmetic = Arithmetic(tuple(map(type, begin)))
        self.place: str | None = None  # line of the user's code that first reads a number as a plain one
        self.open = True
        self._count = len(begin)
        self.numbers = [FollowedNumber(self, index, value) for index, value in enumerate(begin)]

    def apply(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Carry out an operation and record it; a result that is no number becomes a condition."""
        for one in arguments:
            if type(one) is FollowedNumber and one.trace is not self and one.trace.open:
                return one.trace.apply(function, *arguments)  # a value that the step has read of a tensor
        value = function(*map(plain, arguments))
        if not self.open:
            return value
        if type(value) in _KINDS:
            self._line(function, arguments, value)
            return FollowedNumber(self, self._count - 1, value)
        return self._condition(function, arguments, value)

    def read(self, number: FollowedNumber, function: Callable[[Any], Any] = operator.pos) -> Any:
        """Return the plain value of a number; the next step must have the same."""
        value = function(number.value)
        if not self.open:
            return value
        if self.place is None:
            self.place = user_place()
        return self._condition(function, (number,), value)

    def constant(self, value: Any) -> Any:
        """Record a constant of the step and return it as a followed number; a value that is no number is returned as it
        is."""
        return self.apply(_identity, value) if is_number(value) else value

    def _condition(self, function: Callable[..., Any], arguments: tuple[Any, ...], value: Any) -> Any:
        self._line(function, arguments, value, value)
        return value

    def _line(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], value: Any, expected: Any = _FREE
    ) -> None:
        refs = tuple(self._ref(a) if type(a) is FollowedNumber else a for a in arguments)
        self.arithmetic.lines.append(Line(function, refs, type(value), expected))
        self._count += 1

    def _ref(self, number: FollowedNumber) -> Any:
        """Make a reference to a number; one kept from another run counts as plain."""
        return Ref(number.index) if number.trace is self else number.value


def plain(value: Any) -> Any:
    """Return the value of a followed number; leave anything else as it is."""
    return value.value if type(value) is FollowedNumber else value


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

    def __copy__(self) -> FollowedNumber:
        return self

    def __deepcopy__(self, memo: Any) -> FollowedNumber:
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _identity, (self.trace.read(self),)

    def __format__(self, spec: str) -> str:
        return self.trace.read(self, functools.partial(_formatted, spec))

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
        return getattr(ufunc, method)(*map(_read, inputs), **kwargs)

    def __array_function__(self, function: Any, kinds: Any, args: Any, kwargs: Any) -> Any:
        if not kwargs and all(type(x) in (*_NUMBERS, FollowedNumber) for x in args):
            return self.trace.apply(function, *args)
        return function(*map(_read, args), **{name: _read(value) for name, value in kwargs.items()})


_OWN = frozenset(("trace", "index", "value", "node"))


def _identity(value: Any) -> Any:
    return value


def _formatted(spec: str, value: Any) -> str:
    return format(value, spec)


def _read(value: Any) -> Any:
    return value.trace.read(value) if type(value) is FollowedNumber else value


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    _what = getattr(operator, _name)
    setattr(FollowedNumber, f"__{_name}__", _operation(_what))
    setattr(FollowedNumber, f"__r{_name}__", _operation(_what, reflected=True))
for _name in ("lshift", "rshift", "and_", "or_", "xor"):
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


@dataclass
class _Replaced:
    """Functions of a namespace that are replaced, and by how many threads."""

    functions: dict[str, Any]
    inside: int = 0


_MATH = {id(held) for held in vars(math).values() if isinstance(held, types.BuiltinFunctionType)}
_in_math: dict[int, _Replaced] = {}  # by namespace
_math_lock = threading.Lock()


@contextlib.contextmanager
def followed_in_math(spaces: Sequence[dict[str, Any]]) -> Iterator[None]:
    """Context manager: record calls of Python's `math` on followed numbers, also under the names that these namespaces
    give its functions. Threads may be inside at the same time; the last one puts the functions back."""
    each = {id(one): one for one in (vars(math), *spaces)}
    with _math_lock:
        for key, space in each.items():
            if key not in _in_math:
                found = _in_math[key] = _Replaced({n: f for n, f in space.items() if id(f) in _MATH})
                space.update({name: _followed(function) for name, function in found.functions.items()})
            _in_math[key].inside += 1
    try:
        yield
    finally:
        with _math_lock:
            for key, space in each.items():
                _in_math[key].inside -= 1
                if not _in_math[key].inside:
                    space.update(_in_math.pop(key).functions)


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
