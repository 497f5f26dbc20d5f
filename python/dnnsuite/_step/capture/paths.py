# SPDX-License-Identifier: MIT
"""Recordings of one layout of batch for each way that Python takes by values it reads during a step.

How often a loop runs until its result converges is such a way. The recording that was right last is tried first; a
value that differs says which others may be right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch

from .looks import Looks, ValueChanged, holds
from .placed import Read

MAX_PATHS = 64
_MANY = 4  # values of one read that are tried in a step
_UNKNOWN = (
    MAX_PATHS  # steps that no recording is right for, beyond others, after which there is no use in more
)


class Path(Protocol):
    """Recording of one way through a step."""

    stage: str
    looks: Looks
    read: list[Read]
    replay: Any


class Paths:
    """Ways through a step of one layout, the last right one first."""

    def __init__(self) -> None:
        self._each: list[Any] = []
        self._failed: list[tuple[tuple[Any, ...], int]] = []  # values of a path, and the first that differs
        self._unknown = 0
        self._place = ""

    @property
    def refusal(self) -> str | None:
        """Reason to give up if most steps go ways that no recording knows; else None."""
        if self._unknown <= _UNKNOWN:
            return None
        return f"values that Python reads in a step keep leading it another way{self._place}"

    def __iter__(self) -> Iterator[Any]:
        return iter(self._each)

    def has(self, looks: Looks) -> bool:
        """Return True if there is a recording of the way with these values."""
        return any(one.looks.values == looks.values for one in self._each)

    def add(self, path: Path) -> None:
        """Add a recording in the place of one that reads the same values, or of the one not used for longest."""
        others = [one for one in self._each if one.looks.values != path.looks.values]
        self._each = [path, *others][:MAX_PATHS]

    def replay(self, inputs: Sequence[torch.Tensor]) -> torch.Tensor | None:
        """Replay a step on the path that is right for it; None if there is none, and nothing was run then."""
        self._failed = []
        for path in self.left("replay", inputs):
            try:
                losses: torch.Tensor = path.replay(inputs)
            except ValueChanged as error:
                self.failed(path, error)
                continue
            self._each = [path, *(one for one in self._each if one is not path)]
            self._unknown = max(0, self._unknown - 1)
            return losses
        return None

    def compare(
        self, inputs: Sequence[torch.Tensor], compare: Callable[[Any], torch.Tensor]
    ) -> torch.Tensor | None:
        """Take a step that no replay is right for with `compare`, by a path that was not compared yet; None if there is
        none."""
        self._unknown += 1
        for path in self.left("compare", inputs):
            try:
                losses = compare(path)
            except ValueChanged as error:
                self.failed(path, error)
                continue
            if path.stage == "record":  # it has to be recorded again
                self._each = [one for one in self._each if one is not path]
            return losses
        return None

    def left(self, stage: str, inputs: Sequence[torch.Tensor]) -> Iterator[Any]:
        """Yield the paths of a stage that may be right for the step, while others are found to be wrong."""
        rest = [path for path in self._each if path.stage == stage]
        while rest := [path for path in rest if self._may_be(path.looks.values)]:
            path = self._next(rest)
            rest = [one for one in rest if one is not path]
            if _begins(path, inputs):
                yield path

    def _next(self, rest: list[Any]) -> Any:
        """Choose the path to try: the last right one, the one nearest to it, then the longest, which fails where the
        step ends its loop and so tells which path is right."""
        if not self._failed:
            return rest[0]
        return (min if len(self._failed) == 1 else max)(rest, key=lambda path: len(path.looks.values))

    def failed(self, path: Path, error: ValueChanged) -> None:
        """Take note that a path is wrong for the step."""
        self._failed.append((path.looks.values, error.read))
        self._place = str(error).partition(" at ")[2] and f" at {str(error).partition(' at ')[2]}"

    def _may_be(self, values: tuple[Any, ...]) -> bool:
        """Return True if a path agrees with all that is known of the step."""
        tries = Counter(read for _, read in self._failed)
        return all(
            values[:read] == wrong[:read]
            and values[read : read + 1] != wrong[read : read + 1]
            and tries[read] < _MANY
            for wrong, read in self._failed
            if read >= 0
        )


def _begins(path: Path, inputs: Sequence[torch.Tensor]) -> bool:
    """Return True if a path is right for all that is known before the step."""
    guard = path.replay.guard
    return all(read.holds(inputs) for read in path.read) and (guard is None or holds(guard, inputs))
