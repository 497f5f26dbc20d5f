# SPDX-License-Identifier: MIT
"""Eager steps, watched: recorded, and compared with a replay from the same state.

Steps with numbers as inputs are followed once, compared once, then replayed with the numbers of each step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from ..capture import guards
from .arithmetic import followed_in_math, same
from .changing_numbers import ChangingNumbers
from .comparison import CannotBeKept, KeptPython, State, difference, reads_of
from .cuda import CudaGraphs, CudaRepeat
from .exchange import Attempt, NumberedReplay, find_numbered
from .followed_step import FollowedStep, NotFollowed, WritesElsewhere, follow
from .guards import newly_left, put_back, tensors_left
from .looks import Replay, ValueChanged
from .plan import StepRecording
from .python_state import held_in, python_values
from .read_floats import HiddenReads
from .record import StepRecorder
from .script import NotScriptable, SameBits, Scripts, described
from .unseen import Unseen

Train = Callable[[Any, Sequence[Any]], torch.Tensor]
NO_MEMORY = "the device has no memory left to compare a replay with the step"


@dataclass
class StepInputs:
    """Inputs of a step: batch, hyper-parameters, and the tensors of both, the last `fixed` of which seldom change."""

    batch: Any
    hyper: Sequence[Any]
    tensors: list[torch.Tensor]
    fixed: int


class StepWatch:
    """Recorder of steps that run as written.

    Args:
        state: collects by name what a step may change without an operator that names it.
        numbers: inputs of recordings; the step may change those that modules hold.
        unseen: tells what the step reads that nobody can compare.
    """

    def __init__(
        self,
        train: Train,
        array: torch.nn.Module,
        state: Callable[[], Mapping[str, torch.Tensor]],
        replays: Scripts | CudaGraphs,
        numbers: ChangingNumbers,
        unseen: Unseen,
    ) -> None:
        self.unseen = unseen
        self.train, self.array, self.state, self.replays, self.numbers = train, array, state, replays, numbers
        self.leaves = False  # a step leaves tensors in attributes of modules

    def run(self, given: StepInputs) -> torch.Tensor:
        """Run a step as written."""
        return self.train(given.batch, given.hyper)

    def fixed(self, given: StepInputs) -> StepInputs:
        """Return the inputs that a recorded step runs on."""
        batch, hyper = self.replays.fixed(given.batch, given.hyper)
        tensors = guards.flatten(batch)[0]
        for own in hyper:
            tensors += own.values()
        return StepInputs(batch, hyper, tensors, given.fixed)

    def record(self, given: StepInputs) -> tuple[torch.Tensor, StepRecording]:
        """Run a step as written, and record it."""
        recorder = StepRecorder(given.tensors, given.fixed, self.replays.seeded, self.replays.home)
        in_math = followed_in_math(self.numbers.spaces)
        before = tensors_left(self.array)
        with recorder, HiddenReads(recorder, partial(held_in, self.array)), in_math:
            with self.unseen.watching():
                losses = self.run(given)
            left = newly_left(self.array, before)
        why = self.unseen.reason()
        if why is not None and recorder.recording.refusal is None:
            recorder.recording.refuse(why)
        recorder.recording.losses = recorder.slot(losses).index
        recorder.recording.left = {place: recorder.slot(tensor).index for place, tensor in left.items()}
        return losses, recorder.recording

    def prepare(self, recording: StepRecording, given: StepInputs) -> Replay:
        """Make the replay of a recorded step.

        Raises:
            NotScriptable: if there is none.
        """
        if not self.replays.runs_code:
            return self._prepared(recording, given)
        try:
            python = KeptPython(self.array, self.numbers.readers)
        except CannotBeKept as error:
            raise NotScriptable(f"the step would run once more, to be captured: {error}") from None
        try:
            return self._prepared(recording, given)
        finally:
            python.put_back()

    def _prepared(self, recording: StepRecording, given: StepInputs) -> Replay:
        replay = self.replays.prepare(self.train, recording, given.batch, given.hyper, given.tensors)
        self.leaves = replay.leaves_in(self.array) or self.leaves
        return replay

    def state_of(self, recording: StepRecording) -> State:
        """Copy all that the recorded step changes."""
        tensors = [*recording.written_externals(), *self.state().values()]
        return State(tensors, self.replays.home_of_copies(tensors))

    def compare(
        self, attempt: Attempt, recording: StepRecording, replay: Replay, numbers: Sequence[Any], given: StepInputs
    ) -> tuple[torch.Tensor | None, str | None]:
        """Run a step replayed and as written, from the same state; return its losses, and the difference if there is
        one. Losses are None, and nothing has changed, where the device has no memory for that.

        Args:
            numbers: inputs of the replay beside the tensors.

        Raises:
            ValueChanged: by a replay that is for other values than those of this step; nothing was run then.
        """
        repeat: SameBits | CudaRepeat | None = None
        with suppress(torch.OutOfMemoryError):
            state = self.state_of(recording)
            repeat = self.replays.repeat(state)
        if repeat is None:
            return None, NO_MEMORY
        left = tensors_left(self.array)
        why, replayed, losses = None, None, None
        try:
            replayed = replay([*given.tensors, *numbers])
        except ValueChanged:
            raise
        except torch.OutOfMemoryError:
            why = NO_MEMORY
        except Exception as error:  # whatever a replay fails with, the step as written follows
            why = described(error)
        try:
            state.exchange()
            put_back(self.array, left)  # the next step may read it
            repeat.same_draws()
            losses, second = self.record(given)
        except torch.OutOfMemoryError:
            if not isinstance(repeat, CudaRepeat) or self.side_effect(attempt) is not None:
                raise  # code that has counted may not run again
            repeat.undo()
        if losses is None:
            return None, NO_MEMORY
        if guards.ways(self.array) != attempt.ways:
            attempt.stage = "record"
            return losses, None
        why = why or second.refusal or difference(recording, second) or self.side_effect(attempt)
        if why is None:
            assert replayed is not None
            written = [losses, *state.tensors]
            try:
                agree = repeat.agrees([replayed, *state.values], written, lambda: self.run(given))
                why = None if agree else "a replay gives other bits than the step as written"
            except torch.OutOfMemoryError:
                why = NO_MEMORY
        return losses, why

    def python_values(self) -> dict[str, Any]:
        """Collect the Python values of the modules that a step must not change."""
        return python_values(self.array, self.numbers.held_keys)

    def side_effect(self, attempt: Attempt) -> str | None:
        """Name a Python value that the step has changed; None without one."""
        now = self.python_values()
        for name in {**attempt.values, **now}:
            if attempt.values.get(name) != now.get(name):
                return f"a step changes the Python value {name}"
        return None


def refuse_writes_under_reads(recording: StepRecording, given: int) -> None:
    """Refuse a step that writes into its batch (the first `given` inputs), or into a tensor whose values Python
    reads."""
    batch = recording.inputs[:given]
    if any(recording.storage[slot] in recording.written for slot in batch):
        recording.refuse(f"the step writes into its batch{recording.writer_of(batch)}")
    if any(recording.storage[slot] in recording.written for slot in recording.read):
        changes = recording.writer_of(recording.read)
        recording.refuse(f"Python looks into a tensor that the step changes{changes}")


MAX_WAYS = 8  # of steps with numbers as inputs, which lead Python one way or another


class NumberedSteps:
    """Steps with numbers as inputs; each path that Python takes for them has a recording.

    `seen` in the methods holds the values that the readers read for this step.
    """

    def __init__(self, watch: StepWatch) -> None:
        self._watch, self._numbers = watch, watch.numbers

    def _now(self, seen: Sequence[Any]) -> list[Any]:
        return self._numbers.values(self._numbers.places, seen)

    def replay(self, attempt: Attempt, tensors: list[torch.Tensor], seen: Sequence[Any]) -> torch.Tensor | None:
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

    def go_on(self, attempt: Attempt, given: StepInputs, seen: Sequence[Any]) -> tuple[torch.Tensor, str | None]:
        """Take a step on the way to a replay: compare it if its path was followed before, else follow it.

        Returns its losses, and why numbers cannot be inputs.

        Raises:
            ValueChanged: if the replay is for other values of its tensors; nothing was run then.
        """
        begin = self._now(seen)
        found = find_numbered(attempt.pending, begin, given.tensors)
        if found is not None:
            return self._compare(attempt, *found, begin, given, seen)
        if len(attempt.pending) == MAX_WAYS or len(attempt.numbered) == MAX_WAYS:
            places = [one.step.place for one in (*attempt.pending, *attempt.numbered)]
            where = next(filter(None, places), "")
            why = f"a number that Python looks at keeps changing{where}"
            return self._watch.run(given), why
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
        if losses is None:
            return self._watch.run(given), why
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
    ) -> tuple[torch.Tensor, str | None]:
        """Run the step once with stand-ins for numbers, as a trial, and once as written."""
        assert attempt.recording is not None
        watch = self._watch
        followed, why = None, None
        try:
            python = KeptPython(watch.array, self._numbers.readers)
        except CannotBeKept as error:
            return watch.run(given), str(error)
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
            return losses, why
        why = self._refused(attempt, followed, begin, second, seen)
        return losses, why or self._prepare(attempt, followed, given)

    def _refused(
        self, attempt: Attempt, followed: FollowedStep, begin: list[Any], second: StepRecording, seen: Sequence[Any]
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
