# SPDX-License-Identifier: MIT
"""Values that Python reads while a step is recorded: its decisions hold only while they stay the same.

The recorder adds a comparison and an assertion to the operators for each. Values that follow from the batch alone, such
as a mask that is all true, are compared before the step and choose one of several recordings. Other values, as in the
checks of torch.distributions, and all that a loop of the user's code reads, are compared during the step: if one
differs, the step's changes are undone, and another path is tried (`Paths`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch

from .plan import MARK, OperatorCall, StepRecording, TensorSlot, slots_in, slots_of

_MANY = 64  # operators that are too many to run twice in each step
_READ = re.compile(r" \(read (\d+)\)")  # at the end of an assertion's message
_HEAVY = ("mm", "bmm", "addmm", "baddbmm", "convolution", "attention", "dnnsuite", "linear", "einsum")


class Replay(Protocol):
    """Replay of a step on the step's own tensors; `guard`, if any, tells whether it is right for them. `program` is the
    recording that it shares with the replays of other shards."""

    guard: Replay | None

    @property
    def program(self) -> Any: ...

    def __call__(self, inputs: Sequence[torch.Tensor]) -> torch.Tensor: ...

    def written(self) -> Sequence[torch.Tensor]:
        """List the tensors from before a step that the step writes into."""

    def leaves_in(self, array: torch.nn.Module) -> bool:
        """Leave what the step leaves in attributes in those of `array` from now on; return True if there is any."""


class ValueChanged(RuntimeError):
    """Raised by a replay if a value differs from the one that Python has read; the step is undone.

    `read` is the number of the value, in the order in which the step reads them.
    """

    def __init__(self, message: str) -> None:
        found = _READ.search(message)
        super().__init__(message if found is None else message[: found.start()])
        self.read = -1 if found is None else int(found[1])


def without_number(value: Any) -> Any:
    """Take the number of the read out of an assertion's message; leave anything else as it is."""
    return _READ.sub("", value) if type(value) is str else value


def guard_of(recording: StepRecording) -> tuple[StepRecording | None, frozenset[int]]:
    """Find the assertions that can be checked before the step.

    Returns the operators that make them, with one truth value as the result, and the places of these assertions.
    """
    found: dict[int, set[int]] = {}
    outer = {recording.storage[slot] for slot in (*recording.external, *recording.inputs)}
    dirty: set[int] = set()
    for place, call in enumerate(recording.calls):
        if place in recording.looks and place not in recording.in_loops:
            leading = _leading_to(recording, place, outer, dirty)
            if leading is not None:
                found[place] = leading
        dirty |= recording.written_by(call) & outer
    if not found:
        return None, frozenset()
    calls = [recording.calls[place] for place in sorted(set().union(*found.values()))]
    results = [next(iter(slots_of(recording.calls[place].arguments))) for place in found]
    return _conjunction(recording, calls, results), frozenset(found)


def looks_on_the_way(recording: StepRecording) -> bool:
    """Return True if the last value that Python has read can only be compared during the step."""
    last = recording.looks[-1]
    outer = {recording.storage[slot] for slot in (*recording.external, *recording.inputs)}
    dirty = set().union(*(recording.written_by(call) for call in recording.calls[:last])) & outer
    return last in recording.in_loops or _leading_to(recording, last, outer, dirty) is None


def _leading_to(recording: StepRecording, place: int, outer: set[int], dirty: set[int]) -> set[int] | None:
    """Find the operators that an assertion depends on; None if they write into tensors that outlive the step, or take
    too long.

    Args:
        outer: storages that were there before the step.
        dirty: those of them that are written before the assertion.
    """
    needed = slots_of(recording.calls[place].arguments)
    storages = {recording.storage[slot] for slot in needed}
    leading = set()
    for earlier in range(place - 1, -1, -1):
        call = recording.calls[earlier]
        written = recording.written_by(call)
        if earlier in recording.looks or not (needed & slots_in(call.outputs) or storages & written):
            continue
        if written & outer or any(word in call.name for word in _HEAVY):
            return None
        needed |= slots_of(call.arguments)
        storages = {recording.storage[slot] for slot in needed}
        leading.add(earlier)
    if needed & recording.numbers.keys():
        return None
    return leading if not storages & dirty and len(leading) <= _MANY else None


def _conjunction(recording: StepRecording, calls: list[OperatorCall], results: list[int]) -> StepRecording:
    storage, last = dict(recording.storage), results[0]
    both = torch.ops.aten.logical_and.default
    for result in results[1:]:
        slot = len(storage)
        storage[slot] = -slot  # no storage of the step
        arguments = (TensorSlot(last), TensorSlot(result))
        calls = [*calls, OperatorCall(both, arguments, [slot], writes=False, views=False)]
        last = slot
    inputs = [slot for slot in recording.inputs if slot not in recording.numbers]
    return replace(recording, calls=calls, inputs=inputs, numbers={}, storage=storage, losses=last, looks=[], left={})


def changed_before_looks(recording: StepRecording, guarded: frozenset[int]) -> list[torch.Tensor] | None:
    """List the tensors changed up to the last assertion that is not among `guarded`; None without one."""
    last = max((place for place in recording.looks if place not in guarded), default=None)
    if last is None:
        return None
    written = set().union(*(recording.written_by(call) for call in recording.calls[:last]))
    return [t.detach() for slot, t in recording.external.items() if recording.storage[slot] in written]


@dataclass(frozen=True)
class Looks:
    """Values that Python has read in a recording, in order.

    Attributes:
        place: line of the user's code that reads the first.
        before: those that are compared before the step.
    """

    values: tuple[Any, ...] = ()
    place: str = ""
    before: tuple[Any, ...] = ()

    @classmethod
    def of(cls, recording: StepRecording) -> Looks:
        """List those of a recording: each is compared in the operator before its assertion."""
        calls, (_, guarded) = recording.calls, guard_of(recording)
        values = {place: calls[place - 1].arguments[1] for place in recording.looks}
        before = tuple(value for place, value in values.items() if place in guarded)
        return cls(tuple(values.values()), calls[recording.looks[0]].place if values else "", before)

    @property
    def on_the_way(self) -> bool:
        """True if values are compared during the step."""
        return len(self.before) < len(self.values)


NO_LOOKS = Looks()


class CheckedReplay:
    """Replay with assertions inside; if one fails, its changes are undone.

    Args:
        changed: the tensors that the replay changes before its last assertion.
    """

    def __init__(self, replay: Replay, changed: Sequence[torch.Tensor]) -> None:
        self.replay, self.changed = replay, list(changed)
        self.program = replay.program
        self.guard: Replay | None = None

    def written(self) -> Sequence[torch.Tensor]:
        return self.replay.written()

    def leaves_in(self, array: torch.nn.Module) -> bool:
        return self.replay.leaves_in(array)

    def __call__(self, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        before = [tensor.clone() for tensor in self.changed]
        try:
            return self.replay(inputs)
        except RuntimeError as error:
            for tensor, value in zip(self.changed, before, strict=True):
                tensor.copy_(value)
            found = str(error).partition(MARK)
            if found[1]:
                raise ValueChanged("".join(found[1:])) from None
            raise


def holds(guard: Replay, inputs: Sequence[torch.Tensor]) -> bool:
    """Return True if the values that a guard compares are those of this step."""
    try:
        return bool(guard(inputs))
    except RuntimeError:  # it was recorded for a batch on which these operators can be run
        return False


MAX_PATHS = 64
MAX_OUTCOMES = 4  # paths that depend on the batch alone
MAX_WAYS = 8  # paths of steps with numbers as inputs, which lead Python one way or another
_MANY_OF_ONE_READ = 4  # values of one read that are tried in a step


class Paths:
    """Ways through a step of one layout, the last right one first. Numbers that change say before a step whether a way
    is theirs; what Python reads of the batch is compared before a replay by its guard, what it reads on the way in the
    replay.

    Each is a `Way` of `exchange.py`. In the methods, `numbers` are those that the step begins with.
    """

    def __init__(self) -> None:
        self._each: list[Any] = []
        self._failed: list[tuple[tuple[Any, ...], int]] = []  # values of a path, and the first that differs
        self._unknown = 0
        self._place = ""

    @property
    def refusal(self) -> str | None:
        """Reason to give up if most steps go ways that no recording knows; else None."""
        most = MAX_PATHS if self._on_the_way else 2 * MAX_OUTCOMES
        return self.doubt if self._unknown > most else None

    @property
    def doubt(self) -> str | None:
        """Reason for which steps go ways that no recording knows; None if there is none."""
        if self._by_numbers:
            return None  # numbers are no inputs any more once there are too many ways
        if not any(one.looks.values for one in self._each):
            where = next((read.where for one in self._each for read in one.read), None)
            return None if where is None else f"the step looks into tensors that keep changing{where}"
        if self._on_the_way:
            return f"values that Python reads in a step keep leading it another way{self._place}"
        return f"values of the batch that Python reads keep changing{self._each[0].looks.place}"

    @property
    def _on_the_way(self) -> bool:
        return not self._each or any(one.looks.on_the_way for one in self._each)

    @property
    def _by_numbers(self) -> bool:
        return any(one.step is not None for one in self._each)

    @property
    def full(self) -> bool:
        """True if no further recording is wanted."""
        if self._by_numbers:
            return len(self._each) >= MAX_WAYS
        return not self._on_the_way and len(self._each) >= MAX_OUTCOMES

    @property
    def only(self) -> Any:
        """The replay that is right for every step; None if something has to be looked at before, or on the way."""
        if len(self._each) != 1:
            return None
        (one,) = self._each
        known = one.stage == "replay" and not (one.read or one.looks.values or one.step)
        return one.replay if known else None

    @property
    def outdated(self) -> str | None:
        """Reason to count another recording, where the tensors that a step looks into have changed since its only way
        was recorded; else None."""
        outdated = len(self._each) == 1 and self._each[0].stage == "replay" and not self._each[0].looks.values
        return self.doubt if outdated else None

    def __iter__(self) -> Iterator[Any]:
        return iter(self._each)

    @property
    def last(self) -> Any:
        """The path of the last replay."""
        return self._each[0]

    def has(self, looks: Looks, step: Any = None) -> bool:
        """Return True if there is a recording of the way with these values, and this arithmetic on numbers."""
        return any(_same_way(one, looks, step) for one in self._each)

    def add(self, path: Any) -> None:
        """Add a recording in the place of one that reads the same values, or of the one not used for longest."""
        others = [one for one in self._each if not _same_way(one, path.looks, path.step)]
        self._each = [path, *others][:MAX_PATHS]

    def replay(self, inputs: Sequence[torch.Tensor], numbers: Sequence[Any] = ()) -> torch.Tensor | None:
        """Replay a step on the path that is right for it, the first from then on; None if there is none, and nothing
        was run then."""
        self._failed = []
        for path in self.left("replay", inputs, numbers):
            try:
                losses: torch.Tensor = path.replay([*inputs, *path.fed()])
            except ValueChanged as error:
                self.failed(path, error)
                continue
            if path is not self._each[0]:
                self._each = [path, *(one for one in self._each if one is not path)]
            self._unknown = max(0, self._unknown - 1)
            return losses
        return None

    def compare(
        self, inputs: Sequence[torch.Tensor], compare: Callable[[Any], torch.Tensor], numbers: Sequence[Any] = ()
    ) -> torch.Tensor | None:
        """Take a step that no replay is right for with `compare`, by a path that was not compared yet; None if there is
        none."""
        self._unknown += 1
        for path in self.left("compare", inputs, numbers):
            try:
                losses = compare(path)
            except ValueChanged as error:
                self.failed(path, error)
                continue
            if path.stage == "record":  # it has to be recorded again
                self._each = [one for one in self._each if one is not path]
            return losses
        return None

    def left(self, stage: str, inputs: Sequence[torch.Tensor], numbers: Sequence[Any] = ()) -> Iterator[Any]:
        """Yield the paths of a stage that may be right for the step, while others are found to be wrong."""
        rest = [path for path in self._each if path.stage == stage]
        while rest := [path for path in rest if not self._failed or self._may_be(path.looks.values)]:
            path = self._next(rest)
            rest.remove(path)
            if path.takes(numbers) and path.begins(inputs):
                yield path

    def _next(self, rest: list[Any]) -> Any:
        """Choose the path to try: the last right one, the one nearest to it, then the longest, which fails where the
        step ends its loop and so tells which path is right."""
        if not self._failed:
            return rest[0]
        return (min if len(self._failed) == 1 else max)(rest, key=lambda path: len(path.looks.values))

    def failed(self, path: Any, error: ValueChanged) -> None:
        """Take note that a path is wrong for the step."""
        self._failed.append((path.looks.values, error.read))
        self._place = str(error).partition(" at ")[2] and f" at {str(error).partition(' at ')[2]}"

    def _may_be(self, values: tuple[Any, ...]) -> bool:
        """Return True if a path agrees with all that is known of the step."""
        tries = Counter(read for _, read in self._failed)
        return all(
            values[:read] == wrong[:read]
            and values[read : read + 1] != wrong[read : read + 1]
            and tries[read] < _MANY_OF_ONE_READ
            for wrong, read in self._failed
            if read >= 0
        )


def _same_way(path: Any, looks: Looks, step: Any) -> bool:
    arithmetic = [one and one.arithmetic for one in (path.step, step)]
    return path.looks.values == looks.values and arithmetic[0] == arithmetic[1]
