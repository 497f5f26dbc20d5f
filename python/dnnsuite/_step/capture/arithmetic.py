# SPDX-License-Identifier: MIT
"""Arithmetic of one recorded step on numbers that are others in the next: written down, to be repeated. Reads and
hand-overs of a user's code are made visible to the recorder meanwhile, or refused.

There are two kinds. With a number that is known before a step, such as a schedule in an attribute, Python computes
again, by the same functions: torch's `cos` rounds in another way than that of Python's `math`. It is handed to torch as
a number that occurs nowhere else, wherever torch's formula is the same for any number: an argument of an operator with
this value is an input of the recording. A float that Python reads of a tensor on the way exists in a replay as a tensor
only: its arithmetic is repeated on float64 tensors, which round as Python does. A decision by one of the first kind, or
a read of its plain value, is a condition of the recording; for the second kind it is an assertion inside of it, and
what tensors cannot repeat refuses the recording.
"""

from __future__ import annotations

import gc
import math
import operator
import random
import types
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from ..._thawed import thawed
from ..._torch import tree_map
from ...nn.model_tensor import ModelTensor
from .plan import StepRecording
from .record import READS_A_VALUE, StepRecorder
from .stand_ins import KINDS, FollowedNumber, is_number, plain, read
from .unseen import called_by_user, user_place

_FREE = object()  # a line whose value may be another one in the next step
_MANY_READ = 64  # elements of a list that are compared in each step
_MEMORY = frozenset((torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.__dlpack__))
_READS = frozenset((torch.Tensor.item, torch.Tensor.tolist, *_MEMORY))
_OPERATIONS = ("add", "sub", "mul", "truediv", "div", "rtruediv", "rdiv", "radd", "rsub", "rmul")
_COMPARED = ("lt", "le", "gt", "ge", "eq", "ne")
_FUNCTIONS = (
    *("add", "sub", "subtract", "rsub", "mul", "multiply", "div", "divide", "true_divide"),
    *("clamp", "clip", "clamp_min", "clamp_max", "lerp", "addcmul", "addcdiv", "masked_fill", "where"),
    *("leaky_relu", "elu", "celu", "smooth_l1_loss", "huber_loss"),
    *("fill", "full", "full_like", "new_full", "greater", "greater_equal", "less", "less_equal", "not_equal"),
)
#: Functions of torch whose result is the same formula for any number, 0, 1 and -1 aside.
_SAME_FOR_ALL = frozenset(
    [
        *(f"__{name}__" for name in (*_OPERATIONS, *_COMPARED, "iadd", "isub", "imul", "itruediv", "idiv")),
        *(name for base in (*_FUNCTIONS, *_COMPARED) for name in (base, f"{base}_")),
        "gumbel_softmax",
    ]
)


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


@dataclass(frozen=True)
class Source:
    """Float64 tensor of one element with the value of a float that was read, and the line of the user's code that read
    it."""

    tensor: torch.Tensor
    place: str


class Trace:
    """Trace of a step's arithmetic; `numbers` take the place of those it begins with.

    Args:
        recording: refused where a float that was read is needed itself.
    """

    def __init__(self, recording: StepRecording, begin: Sequence[Any] = ()) -> None:
        self._recording = recording
        self.begin = list(begin)
        self.arithmetic = Arithmetic(tuple(map(type, begin)))
        self.place: str | None = None  # line of the user's code that first reads a number as a plain one
        self.open = True
        self._count = len(begin)
        self.numbers = [FollowedNumber(self, index, value) for index, value in enumerate(begin)]
        self._read: list[weakref.ref[FollowedNumber]] = []

    @property
    def any(self) -> bool:
        """True if there may be stand-ins in the step."""
        return bool(self.numbers or self._read)

    def read_of(self, tensor: torch.Tensor, value: float, place: str) -> FollowedNumber:
        """Make the stand-in for `value`, the element of a float64 `tensor`."""
        made = FollowedNumber(self, Source(tensor, place), value)
        self._read.append(weakref.ref(made))
        return made

    def held(self) -> list[FollowedNumber]:
        """Return the stand-ins for floats that were read, as far as they are still there."""
        return [number for one in self._read if (number := one()) is not None]

    def apply(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Carry out an operation and record it; a result that is no number becomes a condition."""
        for one in arguments:
            if type(one) is FollowedNumber and one.trace is not self and one.trace.open:
                return one.trace.apply(function, *arguments)
        if any(map(_is_read, arguments)):
            return self._on_tensors(function, arguments)
        value = function(*map(plain, arguments))
        if not self.open:
            return value
        if type(value) in KINDS:
            self._line(function, arguments, value)
            return FollowedNumber(self, self._count - 1, value)
        return self._condition(function, arguments, value)

    def read(self, number: FollowedNumber, function: Callable[[Any], Any] = operator.pos) -> Any:
        """Return the plain value of a number; the next step must have the same, which a float that was read has not."""
        value = function(number.value)
        if not self.open:
            return value
        if _is_read(number):
            self.refuse(number)
            return value
        if self.place is None:
            self.place = user_place()
        return self._condition(function, (number,), value)

    def constant(self, value: Any) -> Any:
        """Record a constant of the step and return it as a followed number; a value that is no number is returned as it
        is."""
        return self.apply(operator.pos, value) if is_number(value) else value

    def refuse(self, number: FollowedNumber) -> None:
        """End the recording: a float that was read is needed itself."""
        self._recording.refuse(READS_A_VALUE + number.index.place)

    def _condition(self, function: Callable[..., Any], arguments: tuple[Any, ...], value: Any) -> Any:
        self._line(function, arguments, value, value)
        return value

    def _line(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], value: Any, expected: Any = _FREE
    ) -> None:
        # A number kept from another run counts as plain.
        refs = tuple(
            Ref(one.index) if type(one) is FollowedNumber and one.trace is self else plain(one) for one in arguments
        )
        self.arithmetic.lines.append(Line(function, refs, type(value), expected))
        self._count += 1

    # -- floats that were read -------------------------------------------------------------------------------------

    def _on_tensors(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        """Carry out an operation as Python does, and repeat it on the tensors of floats that were read."""
        known = tuple(one if _is_read(one) and one.trace is self else read(one) for one in arguments)
        value = function(*map(plain, known))
        if not self.open:
            return value
        try:
            found = self._repeated(function, known, value)
        except OverflowError:  # a whole number beyond all floats
            found = None
        if found is not None:
            return found
        for one in filter(_is_read, known):
            self.refuse(one)
        return value

    def _repeated(self, function: Any, arguments: tuple[Any, ...], value: Any) -> Any:
        """Repeat an operation on tensors; None if they would not give what Python does."""
        if any(type(one) is not FollowedNumber and not _is_exact(one) for one in arguments):
            return None
        place = next(one.index.place for one in arguments if type(one) is FollowedNumber)
        given: list[Any] = [one.index.tensor if type(one) is FollowedNumber else float(one) for one in arguments]
        if function in _COMPARISONS:
            return self._decided(_COMPARISONS[function], given, value)
        if function is bool:
            return self._decided(_COMPARISONS[operator.ne], [*given, 0.0], value)
        if function in _OF_MATH:
            return self._decided(_COMPARISONS[operator.eq], [_OF_MATH[function](*given), 1.0], value)
        if type(value) is not float:
            return None
        if function in _OF_ONE:
            if function is math.sqrt:
                self._decided(_COMPARISONS[operator.lt], [*given, 0.0], False)  # Python raises an error
            return self.read_of(_OF_ONE[function](*given), value, place)
        if function in _ARITHMETIC:
            return self.read_of(self._computed(function, *given), value, place)
        return None

    def _computed(self, function: Any, left: Any, right: Any) -> torch.Tensor:
        if function is operator.truediv and type(right) is not float:
            self._decided(_COMPARISONS[operator.eq], [right, 0.0], False)  # Python raises an error
        if type(left) is float:
            left = _aten.full_like.default(right, left)
        found: torch.Tensor = _ARITHMETIC[function](left, right)
        return found

    def _decided(self, ways: tuple[Any, Any], given: list[Any], value: Any) -> Any:
        """Compare as Python did; the recorder takes note of the answer, for it is read of a tensor."""
        left, right = given
        answer = bool(ways[type(right) is not float](left, right))
        return value if answer == bool(value) else None


def _is_read(value: Any) -> bool:
    return type(value) is FollowedNumber and type(value.index) is Source


def _is_exact(value: Any) -> bool:
    """Return True for a number that is the same as a float: Python compares whole numbers digit by digit."""
    return type(value) in (bool, int, float, np.float64) and (float(value) == value or value != value)


_aten = torch.ops.aten
_COMPARISONS: dict[Any, tuple[Any, Any]] = {  # with a number, and with another float that was read
    getattr(operator, name): (getattr(_aten, name).Scalar, getattr(_aten, name).Tensor)
    for name in ("lt", "le", "gt", "ge", "eq", "ne")
}
_ARITHMETIC: dict[Any, Any] = {
    operator.add: _aten.add.Tensor,
    operator.sub: _aten.sub.Tensor,
    operator.mul: _aten.mul.Tensor,
    operator.truediv: _aten.div.Tensor,
}
_OF_ONE: dict[Any, Any] = {
    operator.neg: _aten.neg.default,
    abs: _aten.abs.default,
    math.fabs: _aten.abs.default,
    math.sqrt: _aten.sqrt.default,
}
_OF_MATH: dict[Any, Callable[[torch.Tensor], torch.Tensor]] = {
    math.isfinite: lambda tensor: _aten.lt.Scalar(_aten.abs.default(tensor), math.inf),
    math.isinf: lambda tensor: _aten.eq.Scalar(_aten.abs.default(tensor), math.inf),
    math.isnan: lambda tensor: _aten.ne.Tensor(tensor, tensor),
}


def is_special(value: Any) -> bool:
    """Return True for numbers that torch treats specially, such as 0 and 1: they are conditions of a recording, not
    inputs."""
    return bool(value in (0, 1, -1) or not math.isfinite(value))


class HiddenReads(TorchFunctionMode):
    """Function mode of a recorded step.

    Args:
        trace: trace of the numbers that the step begins with; by default of none.
    """

    def __init__(self, recorder: StepRecorder, trace: Trace | None = None) -> None:
        super().__init__()
        self._recorder, self._recording = recorder, recorder.recording
        self._trace = trace or Trace(recorder.recording)
        self._random = random.Random(0)
        recorder.hand = self._handed_to  # in a backward pass torch has put this mode aside

    def __torch_function__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        left = self._recorder.leave_if_in_vain()
        if self._trace.any and _holds_a_stand_in((args, kwargs)):
            args, kwargs = tree_map(partial(self._handed_to, getattr(func, "__name__", "")), (args, kwargs))
        if func in _READS and not left:
            place = called_by_user()
            if place is not None and not kwargs and len(args) == 1:
                return self._read(func, args[0], place)
        return func(*args, **kwargs)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """End the step, with the garbage that it has made. A float that was read and is still held would be another
        number after the next step: the recording is refused, and the float put in the place of its stand-in."""
        super().__exit__(kind, error, trace)
        if kind is None and self._trace.held():
            gc.collect()  # circles of objects that nobody holds
        self._trace.open = False  # after an error its frames hold what they will
        numbers = self._trace.held() if kind is None else []
        if numbers:
            for number in numbers:
                self._trace.refuse(number)
            del number
            _put_values(numbers)
            numbers.clear()
            if self._trace.held() and gc.get_freeze_count():  # what is frozen may be most of a process
                with thawed():
                    _put_values(self._trace.held())

    def _handed_to(self, name: str, value: Any) -> Any:
        """Return a number in the place of a stand-in among the arguments of a function."""
        return self._handed_over(value) if name in _SAME_FOR_ALL else read(value)

    def _handed_over(self, value: Any) -> Any:
        """Return a number in the place of a stand-in that tells the recorder of it."""
        if type(value) is not FollowedNumber:
            return value
        if value.trace is not self._trace or type(value.index) is Source or is_special(value.value):
            return read(value)
        handed, whole = self._recorder.handed, isinstance(value.value, int)
        while True:
            near = 1 + self._random.random() * 1e-3
            number = value.value + self._random.randrange(10**6) if whole else float(value.value) * near
            if number not in handed and number != value.value:
                handed[number] = value.index
                return number

    def _read(self, func: Any, tensor: torch.Tensor, place: str) -> Any:
        if func is torch.Tensor.item:
            return self._item(tensor, place)
        value = tensor.value[0] if type(tensor) is ModelTensor else tensor
        if func in _MEMORY or value.numel() > _MANY_READ:
            self._recording.refuse(f"Tensor.{func.__name__} hands a tensor's values to Python{place}")
        elif value.is_floating_point() and value.dim() < 2:
            func(tensor)  # all models agree, or an error
            elements = value.detach()
            if not value.dim():
                return self._item(elements, place)
            return [self._item(element, place) for element in elements.unbind()]
        else:
            for element in value.detach().flatten().unbind():
                element.item()
        return func(tensor)

    def _item(self, tensor: torch.Tensor, place: str) -> Any:
        """Read one element; a float that depends on the batch becomes a stand-in."""
        with self._recorder.follows_floats():
            value = torch.Tensor.item(tensor)
        taken = self._recorder.taken
        return value if taken is None else self._trace.read_of(taken, value, place)


def _holds_a_stand_in(value: Any) -> bool:
    """Return True for arguments of a function with a number that is followed."""
    if type(value) in (tuple, list):
        return any(map(_holds_a_stand_in, value))
    if type(value) is dict:
        return any(map(_holds_a_stand_in, value.values()))
    return type(value) is FollowedNumber


def _put_values(numbers: Sequence[FollowedNumber]) -> None:
    """Put the values of stand-ins that are still held in their places, wherever an object of Python's holds one."""
    ids = set(map(id, numbers))
    for holder in gc.get_referrers(*numbers):
        if isinstance(holder, types.FrameType) or holder is numbers:
            continue
        if isinstance(holder, types.CellType):
            holder.cell_contents = plain(holder.cell_contents)
            continue
        held = holder if isinstance(holder, (dict, list, deque)) else getattr(holder, "__dict__", None)
        if held is not None:
            for key, value in list(held.items() if isinstance(held, dict) else enumerate(held)):
                if id(value) in ids:
                    held[key] = value.value
