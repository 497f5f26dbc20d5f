# SPDX-License-Identifier: MIT
"""Values that Python reads while a step is recorded: its decisions hold only while they stay the same.

The recorder adds a comparison and an assertion to the operators for each. If one differs in a replay, the changes of
the step are undone, and another path is tried (`Paths`). There are few paths where all values follow from the batch
alone, such as a mask that is all true; there may be many where some follow from what the step computes, as in the
checks of torch.distributions, or are read by a loop of the user's code.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from .plan import StepRecording, slots_in, slots_of

_MANY = 64  # operators
_READ = re.compile(r" \(read (\d+)\)")  # at the end of an assertion's message
_HEAVY = ("mm", "bmm", "addmm", "baddbmm", "convolution", "attention", "dnnsuite", "linear", "einsum")


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


def looks_on_the_way(recording: StepRecording, places: Sequence[int]) -> bool:
    """Return True if one of the values that Python has read at these places follows from what the step computes."""
    return None in _leading_to_each(recording, places)


def begun_with_looks(recording: StepRecording) -> StepRecording:
    """Move the first values that Python has read to the begin of a step, as far as they follow from what is there
    before it: a replay that is for other values ends at once."""
    first: set[int] = set()
    for place, leading in zip(recording.looks, _leading_to_each(recording, recording.looks), strict=True):
        if leading is None or any(recording.calls[one].writes for one in leading):
            break
        first |= {*leading, place}
    order = sorted(range(len(recording.calls)), key=lambda place: place not in first)
    looks = [order.index(place) for place in recording.looks]
    return replace(recording, calls=[recording.calls[place] for place in order], looks=looks)


def _leading_to_each(recording: StepRecording, places: Sequence[int]) -> list[set[int] | None]:
    """Find the operators that each value at these places depends on; None where some take long, are in a loop of the
    user's code, or write into what is there before the step."""
    outer = {recording.storage[slot] for slot in (*recording.external, *recording.inputs)}
    dirty: set[int] = set()
    found: list[set[int] | None] = []
    for place, call in enumerate(recording.calls):
        if place in places:
            found.append(None if place in recording.in_loops else _leading_to(recording, place, outer, dirty))
        dirty |= recording.written_by(call) & outer
    return found


def _leading_to(recording: StepRecording, place: int, outer: set[int], dirty: set[int]) -> set[int] | None:
    """Find the operators that a value depends on.

    Args:
        outer: storages that were there before the step.
        dirty: those of them that are written before the value is read.
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
    known = not (needed & recording.numbers.keys() or storages & dirty)
    return leading if known and len(leading) <= _MANY else None


def changed_before_looks(recording: StepRecording) -> list[torch.Tensor]:
    """List the tensors that are changed up to the last assertion, of which there is one."""
    written = set().union(*(recording.written_by(call) for call in recording.calls[: recording.looks[-1]]))
    return [t.detach() for slot, t in recording.external.items() if recording.storage[slot] in written]


@dataclass(frozen=True)
class Looks:
    """Values that Python has read in a recording, in order.

    Attributes:
        place: line of the user's code that reads the first.
        on_the_way: some follow from what the step computes.
    """

    values: tuple[Any, ...] = ()
    place: str = ""
    on_the_way: bool = True

    @classmethod
    def of(cls, recording: StepRecording) -> Looks:
        """List those of a recording: each is compared in the operator before its assertion."""
        calls, places = recording.calls, recording.looks
        values = tuple(calls[place - 1].arguments[1] for place in places)
        return cls(values, calls[places[0]].place if places else "", looks_on_the_way(recording, places))


NO_LOOKS = Looks(on_the_way=False)


MAX_PATHS = 64
MAX_OUTCOMES = 4  # paths that depend on the batch alone
MAX_WAYS = 8  # paths of steps with numbers as inputs, which lead Python one way or another
_MANY_OF_ONE_READ = 4  # values of one read that are tried in a step


class Paths:
    """Ways through a step of one layout, the last right one first. Numbers that change say before a step whether a way
    is theirs; what Python reads is compared in the replay.

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
