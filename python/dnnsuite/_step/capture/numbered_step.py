# SPDX-License-Identifier: MIT
"""Steps with numbers as inputs: followed once, compared once, then replayed with the numbers of each step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from . import guards
from .arithmetic import same
from .attempt import Attempt, NumberedReplay, find_numbered
from .comparison import difference, reads_of
from .followed_step import FollowedStep, NotFollowed, WritesElsewhere, follow
from .kept_python import CannotBeKept, KeptPython
from .recording import StepRecording
from .script import NotScriptable
from .watch import StepInputs, StepWatch

MAX_WAYS = 8  # of steps with numbers as inputs, which lead Python one way or another


class NumberedSteps:
    """Steps with numbers as inputs; each path that Python takes for them has a recording.

    `seen` in the methods holds the values that the readers read for this step.
    """

    def __init__(self, watch: StepWatch) -> None:
        self._watch, self._numbers = watch, watch.numbers

    def _now(self, seen: Sequence[Any]) -> list[Any]:
        return self._numbers.values(self._numbers.places, seen)

    def replay(
        self, attempt: Attempt, tensors: list[torch.Tensor], seen: Sequence[Any]
    ) -> torch.Tensor | None:
        """Replay a step; None if no replay is for its numbers.

        Raises:
            ValueChanged: if the replay is for other values of its tensors; nothing was run then.
        """
        found = find_numbered(attempt.numbered, self._now(seen), tensors)
        if found is None:
            return None
        one, values = found
        losses = one.replay([*tensors, *one.step.inputs(values)])
        one.step.update(self._numbers, values)
        return losses

    def go_on(
        self, attempt: Attempt, given: StepInputs, seen: Sequence[Any]
    ) -> tuple[torch.Tensor, str | None, FollowedStep | None]:
        """Take a step on the way to a replay: compare it if its path was followed before, else follow it.

        Returns its losses, why numbers cannot be inputs, and the step that was followed, if one was.

        Raises:
            ValueChanged: if the replay is for other values of its tensors; nothing was run then.
        """
        begin = self._now(seen)
        found = find_numbered(attempt.pending, begin, given.tensors)
        if found is not None:
            return *self._compare(attempt, *found, begin, given, seen), None
        if len(attempt.pending) == MAX_WAYS or len(attempt.numbered) == MAX_WAYS:
            places = [one.step.place for one in (*attempt.pending, *attempt.numbered)]
            where = next(filter(None, places), "")
            why = f"a number that Python looks at keeps changing{where}"
            return self._watch.run(given), why, None
        return self._follow(attempt, begin, given, seen)

    def _compare(
        self,
        attempt: Attempt,
        one: NumberedReplay,
        values: list[Any],
        begin: list[Any],
        given: StepInputs,
        seen: Sequence[Any],
    ) -> tuple[torch.Tensor, str | None]:
        attempt.pending.remove(one)
        recording, inputs = one.step.as_written(values), one.step.inputs(values)
        losses, why = self._watch.compare(attempt, recording, one.replay, inputs, given)
        if attempt.stage == "record":
            return losses, None
        why = why or self._other_counters(one.step.ends(begin, values), seen)
        if why is None:
            attempt.numbered.append(one)
        return losses, why

    def _other_counters(self, expected: Sequence[Any], seen: Sequence[Any]) -> str | None:
        """Explain why the step as written did not leave these numbers; None if it did."""
        if all(map(same, self._now(seen), expected)):
            return None
        return "a number in the models' code is another one than the arithmetic says"

    def _follow(
        self, attempt: Attempt, begin: list[Any], given: StepInputs, seen: Sequence[Any]
    ) -> tuple[torch.Tensor, str | None, FollowedStep | None]:
        """Run the step once with stand-ins for numbers, as a trial, and once as written."""
        assert attempt.recording is not None
        watch = self._watch
        followed, why = None, None
        try:
            python = KeptPython(watch.array, self._numbers.readers)
        except CannotBeKept as error:
            return watch.run(given), str(error), None
        state = watch.state_of(attempt.recording)
        try:
            followed = follow(
                lambda: watch.run(given), given.tensors, given.fixed, self._numbers, seen, state.storages()
            )
        except WritesElsewhere:
            attempt.stage = "record"
        except NotFollowed as error:
            why = str(error)
        finally:
            state.put_back()
            python.put_back()
        losses, second = watch.record(given)
        if guards.ways(watch.array) != attempt.ways:
            attempt.stage = "record"
        if attempt.stage == "record" or followed is None:
            return losses, why, None
        why = self._refused(attempt, followed, begin, second, seen) or self._prepare(attempt, followed, given)
        return losses, why, followed if why is None else None

    def _refused(
        self,
        attempt: Attempt,
        followed: FollowedStep,
        begin: list[Any],
        second: StepRecording,
        seen: Sequence[Any],
    ) -> str | None:
        """Explain why the followed step is not the step as written; None if it is."""
        values = followed.values(begin)
        if values is None:
            return "a number leads to another step"
        return (
            second.refusal
            or difference(followed.as_written(values), second)
            or self._watch.side_effect(attempt)
            or self._other_counters(followed.ends(begin, values), seen)
        )

    def _prepare(self, attempt: Attempt, followed: FollowedStep, given: StepInputs) -> str | None:
        """Make the replay of a followed step; explain why if there is none."""
        recording = followed.recording
        try:
            replay = self._watch.prepare(recording, given)
        except NotScriptable as error:
            return str(error)
        attempt.pending.append(NumberedReplay(followed, replay, reads_of(recording, given.tensors)))
        return None
