# SPDX-License-Identifier: MIT
"""Floats that Python reads of tensors while a step is recorded: their comparisons become looks of the recording.

A stand-in takes the place of the float. Its arithmetic and comparisons are repeated on float64 tensors, which round as
Python does, so a replay decides as Python would. Whatever else is done with it needs the float itself, which the next
step would not have: the recording is refused then.
"""

from __future__ import annotations

import gc
import math
import operator
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from ..._thawed import thawed
from ..._torch import tree_map
from ...nn.model_tensor import ModelTensor
from .arithmetic import FollowedNumber, plain
from .plan import StepRecording
from .record import READS_A_VALUE, StepRecorder
from .unseen import called_by_user

_aten = torch.ops.aten
_CONSTANTS = (bool, int, float, np.float64)
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


@dataclass(frozen=True)
class Source:
    """Float64 tensor of one element with the value of a stand-in, and the line of the user's code that read it."""

    tensor: torch.Tensor
    place: str


class ReadFloats:
    """Stand-ins for the floats that one step reads. `recording` is refused where a float itself is needed."""

    def __init__(self, recording: StepRecording) -> None:
        self._recording = recording
        self.made: list[weakref.ref[FollowedNumber]] = []
        self.open = True

    def stand_in(self, tensor: torch.Tensor, value: float, place: str) -> FollowedNumber:
        """Make the stand-in for `value`, the element of a float64 `tensor`."""
        made = FollowedNumber(self, Source(tensor, place), value)
        self.made.append(weakref.ref(made))
        return made

    def apply(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Carry out an operation on stand-ins as Python does, and repeat it on their tensors."""
        known = tuple(map(self._known, arguments))
        value = function(*map(plain, known))
        if not self.open:
            return value
        try:
            found = self._repeated(function, known, value)
        except OverflowError:  # a whole number beyond all floats
            found = None
        if found is not None:
            return found
        for one in known:
            if type(one) is FollowedNumber:
                self._refuse(one)
        return value

    def read(self, number: FollowedNumber, function: Callable[[Any], Any] = operator.pos) -> Any:
        """Return the value of a stand-in as it is; this ends the recording."""
        if self.open:
            self._refuse(number)
        return function(number.value)

    def plain(self, value: Any) -> Any:
        """Replace stand-ins in the arguments of a function of torch by their values."""
        if not _holds_a_stand_in(value):
            return value
        return tree_map(lambda leaf: self.read(leaf) if self._is_mine(leaf) else leaf, value)

    def end(self) -> None:
        """End the step, with the garbage that it has made. A stand-in that is still held would be another number after
        the next step: the recording is refused."""
        if self.held():
            gc.collect()  # circles of objects that nobody holds
        self.open = False
        for number in self.held():
            self._refuse(number)

    def put_values(self, holders: Iterable[Any] | None = None) -> None:
        """Put the values of stand-ins that are still held in their places: in these dictionaries and lists, or wherever
        an object of Python's holds one, which takes a search through all of them."""
        numbers = self.held()
        if numbers:
            _put_values(numbers, gc.get_referrers(*numbers) if holders is None else holders)

    def held(self) -> list[FollowedNumber]:
        """Return the stand-ins that are still there."""
        return [number for one in self.made if (number := one()) is not None]

    def _is_mine(self, value: Any) -> bool:
        return type(value) is FollowedNumber and value.trace is self

    def _known(self, value: Any) -> Any:
        """Return a stand-in or a plain number; a number of another kind that is followed is read."""
        if type(value) is not FollowedNumber or value.trace is self:
            return value
        return value.trace.read(value)

    def _refuse(self, number: FollowedNumber) -> None:
        self._recording.refuse(READS_A_VALUE + number.index.place)

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
            return self.stand_in(_OF_ONE[function](*given), value, place)
        if function in _ARITHMETIC:
            return self.stand_in(self._computed(function, *given), value, place)
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


def _holds_a_stand_in(value: Any) -> bool:
    """Return True for arguments of a function with a number that is followed."""
    if type(value) in (tuple, list):
        return any(map(_holds_a_stand_in, value))
    if type(value) is dict:
        return any(map(_holds_a_stand_in, value.values()))
    return type(value) is FollowedNumber


def _is_exact(value: Any) -> bool:
    """Return True for a number that is the same as a float: Python compares whole numbers digit by digit."""
    return type(value) in _CONSTANTS and (float(value) == value or value != value)


def _is_finite(tensor: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = _aten.lt.Scalar(_aten.abs.default(tensor), math.inf)
    return found


def _is_infinite(tensor: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = _aten.eq.Scalar(_aten.abs.default(tensor), math.inf)
    return found


def _is_nan(tensor: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = _aten.ne.Tensor(tensor, tensor)
    return found


_OF_MATH = {math.isfinite: _is_finite, math.isinf: _is_infinite, math.isnan: _is_nan}


def _put_values(numbers: Sequence[FollowedNumber], holders: Iterable[Any]) -> None:
    ids = set(map(id, numbers))
    for holder in holders:
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


_MANY_READ = 64  # elements of a list that are compared in each step
_READS_LISTS = frozenset((torch.Tensor.tolist,))
_MEMORY = frozenset((torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.__dlpack__))
_READS = frozenset((torch.Tensor.item, *_READS_LISTS, *_MEMORY))


class HiddenReads(TorchFunctionMode):
    """Function mode that makes hidden reads of a user's code visible to the recorder, or refuses them; floats that it
    reads become stand-ins."""

    _frozen_by_others: ClassVar[bool] = False

    def __init__(self, recorder: StepRecorder, holders: Callable[[], Iterable[Any]] = tuple) -> None:
        """`holders` yields dictionaries and lists in which the step's code is likely to leave a float."""
        super().__init__()
        self._holders = holders
        self._recorder, self._recording = recorder, recorder.recording
        self._floats = ReadFloats(recorder.recording)
        self._froze = False

    def __enter__(self) -> Any:
        # What is there before the step is no part of a circle that the step has made: with it, the search for circles
        # would take as long as the process is large. Frozen objects take long to count: where some were met once, more
        # are taken to be there, and nothing is hidden.
        HiddenReads._frozen_by_others = HiddenReads._frozen_by_others or gc.get_freeze_count() > 0
        self._froze = not HiddenReads._frozen_by_others
        if self._froze:
            gc.freeze()
        return super().__enter__()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._floats.made:
            args, kwargs = self._floats.plain((args, kwargs))
        if func in _READS:
            place = called_by_user()
            if place is not None and not kwargs and len(args) == 1:
                return self._read(func, args[0], place)
        return func(*args, **kwargs)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        super().__exit__(kind, error, trace)
        floats = self._floats
        try:
            if kind is None:
                floats.end()
                floats.put_values()  # into what the step has made
            floats.open = False  # after an error its frames hold what they will
        finally:
            if self._froze:
                gc.unfreeze()
        if kind is None:
            floats.put_values(self._holders())
            if floats.held():
                with thawed():
                    floats.put_values()

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
        return value if taken is None else self._floats.stand_in(taken, value, place)
