# SPDX-License-Identifier: MIT
"""Numbers that a step reads and that change from step to step: arguments of the batch, attributes, variables.

Where they are is found by comparing what two steps have read (`ChangingNumbers`). A step is then followed once with
stand-ins in their places: what it computes with them is written down (`arithmetic.py`), and arguments of operators that
follow from them are inputs of its recording (`HiddenReads`). `FollowedStep` gives their values for other numbers.

They are numbers for the operators, too, not tensors of one element: torch takes no tensor for `alpha`, a slope or a
bound, computes `x * s` in 16 bits and `s / x` in another way with one, and chooses other formulas of gradients.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from ..._state import Put, alike, mark
from ..arguments import with_parts
from .arithmetic import Arithmetic, Trace, is_special
from .plan import OperatorCall, StepRecording, TensorSlot
from .python_state import Path, all_modules, put_values, value_at
from .reach import Reach
from .stand_ins import FollowedNumber, is_number
from .value_readers import Reader, Scope


@dataclass(frozen=True)
class SeenNumber:
    """Number that code reaches: its place in the copy that `reader` makes."""

    reader: int
    path: tuple[int, ...]


@dataclass(frozen=True)
class HeldNumber:
    """Number in the Python state of an array's modules."""

    path: Path
    key: Any


Place = SeenNumber | HeldNumber
HeldState = Mapping[tuple[Path, Any], Any]


class ChangingNumbers:
    """Numbers that have changed from one step to another; any that cannot be followed counts as a constant.

    Args:
        reach: all that the code can see beside its arguments.
        array: array whose modules run.
    """

    def __init__(self, reach: Reach, array: torch.nn.Module) -> None:
        self.readers, self.spaces, self._modules = reach.readers, reach.spaces, all_modules(array)
        self._caches = reach.caches
        self.places: list[Place] = []
        self._given_up: set[Place] = set()
        self._read: Sequence[Any] = ()
        self.why: str | None = None  # the first of them could not be followed

    def see(self, before: Sequence[Any], now: Sequence[Any]) -> None:
        """Take note of numbers that differ between two lists of what the readers read."""
        for number, (a, b) in enumerate(zip(before, now, strict=True)):
            changed = {path for path in _differing(a, b, ()) if is_number(_at(b, path))}
            if {SeenNumber(number, path) for path in changed} <= self._given_up.union(self.places):
                continue
            if self._caches and not isinstance(self.readers[number], BatchNumbers):
                continue  # what a cache has kept from another number is used without a look at the number
            for path, value, _ in self.readers[number].places():
                if path in changed and is_number(value):
                    self._add(SeenNumber(number, path))

    def hold(self, before: HeldState, now: HeldState) -> None:
        """Take note of numbers that differ between two Python states."""
        for key, value in now.items():
            if is_number(value) and not alike(before.get(key), value):
                self._add(HeldNumber(*key))

    def _add(self, place: Place) -> None:
        if place not in self.places and place not in self._given_up:
            self.places.append(place)

    def go_on_with(self, places: Sequence[Place]) -> None:
        """Follow numbers that have changed before an edit, where they still are: models may have got their own."""
        self.places += [place for place in places if self._is_of_batch(place) or is_number(self.held(place))]

    def _is_of_batch(self, place: Place) -> bool:
        return isinstance(place, SeenNumber) and isinstance(self.readers[place.reader], BatchNumbers)

    def give_up(self, why: str) -> None:
        """Treat the current numbers as constants of a recording."""
        self._given_up.update(self.places)
        self.why = self.why or why
        self.places = []

    def begin(self, read: Sequence[Any]) -> None:
        """Begin a step for which the readers have read these values."""
        self._read = read

    def now(self) -> list[Any]:
        """List these numbers in the step under way, None where there is none any more."""
        return list(map(self._value, self.places))

    def _value(self, place: Place) -> Any:
        if isinstance(place, HeldNumber):
            return self.held(place)
        try:
            return _at(self._read[place.reader], place.path)
        except (KeyError, IndexError, TypeError):
            return None

    def put(self, place: Place, value: Any) -> None:
        """Put a value at a place."""
        if isinstance(place, HeldNumber):
            put_values(self._modules, place.path, {place.key: value})
            return
        for path, _, put in self.readers[place.reader].places():
            if path == place.path:
                put(value)
                return

    def held(self, place: Place) -> Any:
        """Return the object that is at a place now; None if there is none."""
        if isinstance(place, HeldNumber):
            return value_at(self._modules, place.path, place.key)
        return next((value for path, value, _ in self.readers[place.reader].places() if path == place.path), None)

    @property
    def seen(self) -> bool:
        """True if code reads some of them from outside of the modules and the batch, where the user may change them."""
        return any(isinstance(place, SeenNumber) and not self._is_of_batch(place) for place in self.places)

    @property
    def deep(self) -> bool:
        """True if some of them lie in containers or objects of modules, not among the attributes."""
        return any(isinstance(place, HeldNumber) and len(place.path) > 1 for place in self.places)

    @property
    def held_keys(self) -> set[tuple[Path, Any]]:
        """Collect the (path, key) of those in the Python state of the modules."""
        return {(place.path, place.key) for place in self.places if isinstance(place, HeldNumber)}

    def rest_seen(self, seen: Sequence[Any]) -> tuple[Any, ...]:
        """Remove these numbers from what the readers read."""
        rest = list(seen)
        for place in self.places:
            if isinstance(place, SeenNumber):
                rest[place.reader] = _without(rest[place.reader], place.path)
        return tuple(rest)

    def rest_held(self, state: HeldState) -> frozenset[Any]:
        """Remove these numbers from a Python state."""
        return frozenset(
            ((path, key), value, mark(value))
            for (path, key), value in state.items()
            if HeldNumber(path, key) not in self.places
        )


def _differing(a: Any, b: Any, path: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield the paths at which two copies differ, as far down as they have the same form."""
    if type(a) is tuple and type(b) is tuple and len(a) == len(b):
        for number, (x, y) in enumerate(zip(a, b, strict=True)):
            yield from _differing(x, y, (*path, number))
    elif not alike(a, b):
        yield path


def _at(value: Any, path: Sequence[int]) -> Any:
    for number in path:
        value = value[number]
    return value


def _without(value: Any, path: Sequence[int]) -> Any:
    if not path:
        return None
    if type(value) is not tuple or path[0] >= len(value):
        return value
    first = path[0]
    return (*value[:first], _without(value[first], path[1:]), *value[first + 1 :])


NO_STATE: HeldState = types.MappingProxyType({})


class BatchNumbers(Reader):
    """Reader of the plain numbers in the batch of the step under way, in order."""

    __slots__ = ("_held", "_replaced")

    def __init__(self) -> None:
        super().__init__(Scope(), "the batch", "", lambda: self._held, self._replace)
        self._held: tuple[Any, ...] = ()
        self._replaced = False

    def take(self, numbers: tuple[Any, ...]) -> None:
        """Begin a step on a batch with these numbers."""
        self._held, self._replaced = numbers, False

    def __call__(self) -> Any:
        return self._held, tuple(map(mark, self._held))

    def _replace(self, value: Any) -> None:
        self._held, self._replaced = value, True

    def places(self) -> Iterator[tuple[tuple[int, ...], Any, Put]]:
        for place, value in enumerate(self._held):
            yield (0, place), value, partial(self._replace_one, place)

    def _replace_one(self, place: int, value: Any) -> None:
        self._replace((*self._held[:place], value, *self._held[place + 1 :]))

    def filled(self, batch: Any) -> Any:
        """Return the batch with its numbers replaced by those that were put."""
        if not self._replaced:
            return batch
        left = iter(self._held)

        def fill(value: Any) -> Any:
            if is_number(value):
                return next(left)
            return [fill(part) for part in value] if type(value) is list else with_parts(value, fill)

        return fill(batch)


def on_filled(train: Callable[..., Any], numbers: BatchNumbers) -> Callable[..., Any]:
    """Wrap `train(batch, hyper)` so that it sees the replaced numbers of the batch."""
    return lambda batch, hyper: train(numbers.filled(batch), hyper)


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

    def update(self, numbers: ChangingNumbers, values: Sequence[Any]) -> None:
        """Set in the modules the numbers that the step as written would leave."""
        for place, index in self.updates:
            numbers.put(place, values[index])

    def ends(self, begin: Sequence[Any], values: Sequence[Any]) -> list[Any]:
        """List the numbers that the step as written would leave, given those it begins with."""
        now = dict(zip(self.places, begin, strict=True)) | {place: values[i] for place, i in self.updates}
        return list(now.values())


class NotFollowed(Exception):
    """Raised where a step cannot be recorded with stand-ins; the message says why."""


def updates_of(trace: Trace, places: Sequence[Place], ends: Sequence[Any]) -> Iterator[tuple[Place, int]]:
    """Yield each number that a step has changed, with its new value.

    Raises:
        NotFollowed: something else stands in its place.
    """
    for place, begin, end in zip(places, trace.numbers, ends, strict=True):
        if end is not begin:
            number = end if type(end) is FollowedNumber else trace.constant(end)
            if type(number) is not FollowedNumber or number.trace is not trace or type(number.index) is not int:
                raise NotFollowed("a step puts something else in the place of a number")
            yield place, number.index
