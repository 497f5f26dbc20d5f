# SPDX-License-Identifier: MIT
"""Record a step with stand-ins for the numbers that change, to find the operator arguments that depend on them.

The step does not train: the caller restores the state. A stand-in that reaches torch becomes a number that occurs
nowhere else, so an argument with this value is an input of the recording.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ..._torch import tree_leaves, tree_map
from .arithmetic import Arithmetic, FollowedNumber, Trace, followed_in_math, is_special
from .changing_numbers import ChangingNumbers, Place
from .guards import newly_left, tensors_left
from .operators import Operator
from .plan import OperatorCall, StepRecording, TensorSlot
from .python_state import held_in
from .read_floats import HiddenReads
from .record import StepRecorder

_FIRST = 10**9  # slot of the first number: no step has as many tensors
_ARITHMETIC = ("add", "sub", "mul", "truediv", "div", "rtruediv", "rdiv", "radd", "rsub", "rmul")
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
_FUNCTIONS = (
    *("add", "sub", "subtract", "rsub", "mul", "multiply", "div", "divide", "true_divide"),
    *("clamp", "clip", "clamp_min", "clamp_max", "lerp", "addcmul", "addcdiv", "masked_fill", "where"),
    *("leaky_relu", "elu", "celu", "smooth_l1_loss", "huber_loss"),
    *("fill", "full", "full_like", "new_full", "greater", "greater_equal", "less", "less_equal", "not_equal"),
)
#: Functions of torch whose result is the same formula for any number, 0, 1 and -1 aside.
_SAME_FOR_ALL = frozenset(
    [
        *(f"__{name}__" for name in (*_ARITHMETIC, *_COMPARISONS, "iadd", "isub", "imul", "itruediv", "idiv")),
        *(name for base in (*_FUNCTIONS, *_COMPARISONS) for name in (base, f"{base}_")),
        "gumbel_softmax",
    ]
)


@dataclass
class FollowedStep:
    """Recording of a step of which some arguments are inputs, and the arithmetic that gives their values."""

    places: tuple[Place, ...]
    recording: StepRecording
    arithmetic: Arithmetic
    fed: list[tuple[int, type]]  # of each number among the recording's inputs: its value, and as which type
    updates: list[tuple[Place, int]]  # numbers that the step itself changes, and the values they get
    place: str  # line of the user's code that reads a number as a plain one; empty without one

    def values(self, begin: Sequence[Any]) -> list[Any] | None:
        """Repeat the arithmetic for these numbers; None if the step takes another branch for them."""
        values = self.arithmetic.values(begin)
        if values is None or any(is_special(values[index]) for index, _ in self.fed):
            return None
        return values

    def inputs(self, values: Sequence[Any]) -> list[Any]:
        """List the numbers that a replay takes, of `values`."""
        return [kind(values[index]) for index, kind in self.fed]

    def as_written(self, values: Sequence[Any]) -> StepRecording:
        """Return the recording with numbers in place of inputs."""
        numbers = dict(zip(self.recording.numbers, self.inputs(values), strict=True))

        def number(value: Any) -> Any:
            if type(value) is TensorSlot:
                return numbers.get(value.index, value)
            return type(value)(map(number, value)) if type(value) in (list, tuple) else value

        def call(one: OperatorCall) -> OperatorCall:
            return replace(one, arguments=tuple(map(number, one.arguments)))

        return replace(self.recording, calls=list(map(call, self.recording.calls)))

    def without_recording(self) -> FollowedStep:
        """Return the arithmetic alone, which holds no tensors."""
        return replace(self, recording=StepRecording())

    def update(self, numbers: ChangingNumbers, values: Sequence[Any]) -> None:
        """Set in the modules the numbers that the step as written would leave."""
        for place, index in self.updates:
            numbers.put(place, values[index])

    def ends(self, begin: Sequence[Any], values: Sequence[Any]) -> list[Any]:
        """List the numbers that the step as written would leave, given those it begins with."""
        now = dict(zip(self.places, begin, strict=True)) | {place: values[i] for place, i in self.updates}
        return list(now.values())


class NotFollowed(Exception):
    """The step cannot be recorded with stand-ins; the message says why."""


class WritesElsewhere(NotFollowed):
    """The step writes into a tensor that the caller does not put back."""


class _StateOutOfSight(BaseException):
    """The step would write into a tensor that is not restored; a user's `except Exception` does not catch it."""


class _FollowingRecorder(StepRecorder):
    """Recorder that finds handed-over numbers among the arguments of operators."""

    def __init__(self, inputs: Sequence[torch.Tensor], fixed: int, seeded: bool, may_change: set[int]) -> None:
        super().__init__(inputs, fixed, seeded)
        self.handed: dict[float, int] = {}  # which value of the trace
        self._may_change = may_change
        self._slots_of_numbers: dict[tuple[float, type], int] = {}
        self.fed: list[tuple[int, type]] = []

    def _with_slots(self, value: Any) -> Any:
        if type(value) in (FollowedNumber, torch.SymFloat):  # the latter is what C++ has made of it
            self._refuse("a number that changes reaches torch where it is not followed, as in a backward pass")
        if type(value) in (int, float) and value in self.handed:
            return TensorSlot(self._number(value))
        return super()._with_slots(value)

    def _number(self, value: float) -> int:
        key = value, type(value)
        if key not in self._slots_of_numbers:
            slot = self._slots_of_numbers[key] = _FIRST + len(self.fed)
            self.recording.numbers[slot] = type(value)
            self.recording.storage[slot] = -slot
            self.recording.inputs.append(slot)
            self.fed.append((self.handed[value], type(value)))
        return self._slots_of_numbers[key]

    def _check(self, func: Any, operator: Operator, values: Sequence[Any], given: Sequence[Any], masked: bool) -> None:
        super()._check(func, operator, values, given, masked)
        recording = self.recording
        outer = {recording.storage[slot] for slot in recording.external} - self._may_change
        call = OperatorCall(func, tuple(given), [], writes=True, views=False)
        if recording.written_by(call) & outer:
            raise _StateOutOfSight


_FollowingRecorder.__torch_dispatch__ = _FollowingRecorder.record


class _HandOver(TorchFunctionMode):
    """Function mode that passes followed numbers to torch: as an input where the formula is the same for any number,
    else as a plain number, which becomes a condition."""

    def __init__(self, trace: Trace, handed: dict[float, int]) -> None:
        super().__init__()
        self._trace, self._handed = trace, handed
        self._random = random.Random(0)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(type(leaf) is FollowedNumber for leaf in tree_leaves((args, kwargs))):
            hand = self._handed_over if getattr(func, "__name__", "") in _SAME_FOR_ALL else self._read
            args, kwargs = tree_map(hand, (args, kwargs))
        return func(*args, **kwargs)

    def _read(self, value: Any) -> Any:
        return value.trace.read(value) if type(value) is FollowedNumber else value

    def _handed_over(self, value: Any) -> Any:
        if type(value) is not FollowedNumber or value.trace is not self._trace or is_special(value.value):
            return self._read(value)
        whole = isinstance(value.value, int)
        while True:
            near = 1 + self._random.random() * 1e-3
            number = value.value + self._random.randrange(10**6) if whole else float(value.value) * near
            if number not in self._handed and number != value.value:
                self._handed[number] = value.index
                return number


def follow(
    step: Callable[[], torch.Tensor],
    inputs: Sequence[torch.Tensor],
    fixed: int,
    numbers: ChangingNumbers,
    seen: Sequence[Any],
    may_change: set[int],
) -> FollowedStep:
    """Record `step` with stand-ins for the numbers that change. Restores Python values, but not tensors.

    Args:
        inputs: tensors that the step brings, the last `fixed` of which seldom change.
        seen: values that the readers of the code read now.
        may_change: storages that the caller puts back.

    Raises:
        NotFollowed: if a number cannot be followed through this step.
    """
    places = tuple(numbers.places)
    trace = Trace(numbers.values(places, seen))
    recorder = _FollowingRecorder(inputs, fixed, False, may_change)
    before = tensors_left(numbers.array)
    try:
        for place, number in zip(places, trace.numbers, strict=True):
            numbers.put(place, number)
        hidden = HiddenReads(recorder, partial(held_in, numbers.array))
        handed = _HandOver(trace, recorder.handed)
        with recorder, hidden, handed, followed_in_math(numbers.spaces):
            losses = step()
            left = newly_left(numbers.array, before)
        recorder.recording.losses = recorder.slot(losses).index
        recorder.recording.left = {place: recorder.slot(tensor).index for place, tensor in left.items()}
        updates = list(_updates(trace, places, [numbers.held(place) for place in places]))
    except _StateOutOfSight:
        raise WritesElsewhere from None
    except NotFollowed:
        raise
    except Exception as error:
        raise NotFollowed(f"{type(error).__name__}: {error}") from None
    finally:
        trace.open = False
        for place, value in zip(places, trace.begin, strict=True):
            numbers.put(place, value)
    if recorder.recording.refusal is not None:
        raise NotFollowed(recorder.recording.refusal)
    return FollowedStep(places, recorder.recording, trace.arithmetic, recorder.fed, updates, trace.place or "")


def _updates(trace: Trace, places: Sequence[Place], ends: Sequence[Any]) -> Iterator[tuple[Place, int]]:
    """Yield each number that the step has changed, with its new value."""
    for place, begin, end in zip(places, trace.numbers, ends, strict=True):
        if end is not begin:
            number = end if type(end) is FollowedNumber else trace.constant(end)
            if type(number) is not FollowedNumber or number.trace is not trace:
                raise NotFollowed("a step puts something else in the place of a number")
            yield place, number.index
