# SPDX-License-Identifier: MIT
"""Eager steps, watched: recorded, and compared with a replay from the same state.

The first recording of a list of operators is used only after such a comparison. Steps with numbers as inputs are
recorded twice, with stand-ins for the numbers and without: the two must call the same operators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from ..capture import guards
from .arithmetic import HiddenReads, Trace, same
from .comparison import CannotBeKept, KeptPython, State, difference
from .cuda import CudaGraphs, CudaRepeat, Replay
from .exchange import Way
from .guards import newly_left, put_back, tensors_left
from .looks import ValueChanged
from .numbers import ChangingNumbers, FollowedStep, NotFollowed, updates_of
from .plan import StepRecording
from .python_state import python_values
from .record import StepRecorder
from .script import NotScriptable, SameBits, Scripts, described
from .stand_ins import followed_in_math
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

    def record(self, given: StepInputs, parts: bool = False) -> tuple[torch.Tensor, StepRecording]:
        """Run a step as written, and record it; with `parts`, up to a value that Python reads on the way."""
        recorder = StepRecorder(given.tensors, given.fixed, self.replays.seeded, self.replays.home)
        recorder.parts = parts
        losses = self._recorded(recorder, given)
        why = self.unseen.reason()
        if why is not None:
            recorder.recording.refuse(why)
        return losses, recorder.recording

    def _recorded(
        self,
        recorder: StepRecorder,
        given: StepInputs,
        trace: Trace | None = None,
        end: Callable[[], None] = lambda: None,
    ) -> torch.Tensor:
        """Run a step inside of a recorder, and `end` after it; return its losses."""
        before, recording = tensors_left(self.array), recorder.recording
        hidden = HiddenReads(recorder, trace)
        with recorder, hidden, followed_in_math(self.numbers.spaces):
            with self.unseen.watching():
                losses = self.run(given)
            left = newly_left(self.array, before)
            end()
        recording.losses = recorder.slot(losses).index
        recording.left = {place: recorder.slot(tensor).index for place, tensor in left.items()}
        return losses

    def follow(self, known: StepRecording, given: StepInputs) -> FollowedStep:
        """Record a step, as a trial, with stand-ins for the numbers that change; `known` is one without.

        Raises:
            NotFollowed: if a number cannot be followed through this step.
            WritesElsewhere: if it writes into what the steps before did not.
        """
        numbers, places, begin = self.numbers, tuple(self.numbers.places), self.numbers.now()
        try:
            python = KeptPython(self.array, numbers.readers)
        except CannotBeKept as error:
            raise NotFollowed(str(error)) from None
        state = self.state_of(known)
        recorder = StepRecorder(given.tensors, given.fixed, may_change=state.storages())
        trace = Trace(recorder.recording, begin)
        updates: list[Any] = []
        try:
            for place, number in zip(places, trace.numbers, strict=True):
                numbers.put(place, number)
            ends = partial(map, numbers.held, places)
            self._recorded(recorder, given, trace, lambda: updates.extend(updates_of(trace, places, [*ends()])))
        except NotFollowed:
            raise
        except Exception as error:
            raise NotFollowed(f"{type(error).__name__}: {error}") from None
        finally:
            trace.open = False
            for place, value in zip(places, begin, strict=True):
                numbers.put(place, value)
            state.put_back()
            python.put_back()
        if recorder.recording.refusal is not None:
            raise NotFollowed(recorder.recording.refusal)
        return FollowedStep(places, recorder.recording, trace.arithmetic, recorder.fed, updates, trace.place or "")

    def other_step(self, way: Way, begin: Sequence[Any], second: StepRecording) -> str | None:
        """Explain why the followed step of `way` is not the `second`, which was recorded as written, for the
        numbers `begin`; None if it is."""
        assert way.step is not None
        if not way.takes(begin):
            return "a number leads to another step"
        return (
            second.refusal
            or difference(way.step.as_written(way.numbers), second)
            or self.side_effect(way)
            or self.other_counters(way, begin)
        )

    def other_counters(self, way: Way, begin: Sequence[Any]) -> str | None:
        """Explain why a step as written did not leave the numbers that its arithmetic says; None if it did."""
        if way.step is None or all(map(same, self.numbers.now(), way.step.ends(begin, way.numbers))):
            return None
        return "a number in the models' code is another one than the arithmetic says"

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
        replay = self.replays.prepare(self.train, recording, given.batch, given.hyper)
        self.leaves = replay.leaves_in(self.array) or self.leaves
        return replay

    def state_of(self, recording: StepRecording) -> State:
        """Copy all that the recorded step changes."""
        tensors = [*recording.written_externals(), *self.state().values()]
        return State(tensors, self.replays.home_of_copies(tensors))

    def compare(self, way: Way, given: StepInputs) -> tuple[torch.Tensor | None, str | None]:
        """Run a step replayed and as written, from the same state; return its losses, and the difference if there is
        one. Losses are None, and nothing has changed, where the device has no memory for that.

        Raises:
            ValueChanged: by a replay that is for other values than those of this step; nothing was run then.
        """
        recording, begin = way.recording, self.numbers.now()
        assert recording is not None
        assert way.replay is not None
        if way.step is not None:
            recording = way.step.as_written(way.numbers)
        repeat: SameBits | CudaRepeat | None = None
        with suppress(torch.OutOfMemoryError):
            state = self.state_of(recording)
            repeat = self.replays.repeat(state)
        if repeat is None:
            return None, NO_MEMORY
        left = tensors_left(self.array)
        why, replayed, losses = None, None, None
        try:
            replayed = way.replay([*given.tensors, *way.fed()])
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
            if not isinstance(repeat, CudaRepeat) or self.side_effect(way) is not None:
                raise  # code that has counted may not run again
            repeat.undo()
        if losses is None:
            return None, NO_MEMORY
        if guards.ways(self.array) != way.ways or second.partial:
            way.stage = "record"
            return losses, None
        why = why or second.refusal or difference(recording, second) or self.side_effect(way)
        why = why or self.other_counters(way, begin)
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

    def side_effect(self, way: Way) -> str | None:
        """Name a Python value that the step has changed; None without one."""
        now = python_values(self.array, self.numbers.held_keys, after=True)
        for name in {**way.values, **now}:
            if way.values.get(name) != now.get(name):
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
