# SPDX-License-Identifier: MIT
"""Captured training step: recorded, compared with the step as written, then replayed without Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..._torch import no_capture
from . import guards
from .cuda import CudaGraphs
from .hidden_reads import HiddenReads
from .library import Facts, Proven, Read, Recordings, Subject, prove
from .looks import Outcomes, Replay, ValueChanged
from .python_state import python_values
from .record import StepRecorder, StepRecording
from .script import NotScriptable, Script, Scripts, described, same_bits

Train = Callable[[Any, Sequence[Any]], torch.Tensor]
MAX_SHAPES = 8  # layouts of batches that are captured; others run as written
MAX_CHANGES = 8  # times that a step is recorded anew because a value was another one


class _Attempt:
    """Progress of the capture of one layout of batch: `stage` is the use of its next step."""

    def __init__(self) -> None:
        self.stage = "begin"  # then "wait" for another shard, "warm up", "record", "compare", "replay"
        self.facts: Facts = ()  # empty where no other shard has an interest
        self.warm = False  # a step was made: state that is made late is there
        self.recording: StepRecording | None = None
        self.replay: Replay | None = None
        self.values: Any = None  # Python values of the modules before the recording
        self.ways: Any = None  # in which the modules' code ran while recorded
        self.read: list[Read] = []


class CapturedStep:
    """`train(batch, hyper)`, run as written until it is known to be a fixed list of operators, then as that list.

    The first step of a layout of batch runs as written, the second is recorded, and the third is run twice from the
    same state: replayed, and as written. Only if both leave the same bits everywhere is it replayed from then on. All
    of them are training steps like any other.

    Where the step of another shard, or of this one's models before an edit, is known to be the same list on other
    tensors, that is replayed at once (`Recordings`). Another layout of batch is recorded in its first step, and
    replayed from the second on if the list differs from a known one in nothing but numbers.
    """

    def __init__(
        self,
        train: Train,
        array: torch.nn.Module,
        function: Callable[..., Any],
        state: Callable[[], Sequence[torch.Tensor]],
        replays: Scripts | CudaGraphs,
        subject: Subject | None = None,
        known: Recordings | None = None,
    ) -> None:
        """`state` gives what a step may change without an operator that names it: parameters, optimizer state.
        `subject` and `known` are there where recordings are shared with other shards."""
        self._train, self._array, self._state, self._replays = train, array, state, replays
        self._subject, self._known = subject, known
        self._function_values = guards.function_values(function, array)
        self._turns = guards.turns(array)
        self._values: list[Any] | None = None
        self._python: Any = None
        self.reset()

    def reset(self) -> None:
        """Forget what was recorded; the next steps are watched again."""
        self._attempts: dict[Any, _Attempt] = {}
        self._outcomes = Outcomes()
        self._shelf: dict[Any, tuple[dict[Any, _Attempt], Outcomes]] = {}  # by Python state and values
        self.refusal: str | None = no_capture
        self.replayed = False
        self._changes = 0
        self._facts: Facts = ()
        self._turned = self._turns()

    @property
    def mode(self) -> str:
        """`captured`, `warming up`, or `eager: ` and the reason."""
        if self.refusal is not None:
            return f"eager: {self.refusal}"
        return "captured" if self.replayed else "warming up"

    def __call__(self, batch: Any, hyper: Sequence[dict[str, torch.Tensor]]) -> torch.Tensor:
        if self.refusal is not None:
            return self._train(batch, hyper)
        if self._turns() != self._turned:
            self._turn_to_another_way()
        inputs, key = guards.flatten(batch)
        given = len(inputs)
        for own in hyper:
            inputs += own.values()
        attempt = self._attempt(key, inputs)
        if attempt is None or self.refusal is not None:
            return self._train(batch, hyper)
        if attempt.stage in ("begin", "wait"):
            self._look_around(attempt, key)
        if attempt.stage == "replay" and attempt.replay is not None:
            if not attempt.read or all(read.holds(inputs) for read in attempt.read):
                self.replayed = True
                try:
                    return attempt.replay(inputs)
                except ValueChanged as error:
                    self._changed(str(error))
            else:
                self._changed("the step looks into tensors that keep changing")
            attempt.stage = "record"
            if self.refusal is not None:
                return self._train(batch, hyper)
        self._fixed = len(inputs) - given
        return self._watched(attempt, batch, hyper, inputs)

    def _attempt(self, key: Any, inputs: Sequence[torch.Tensor]) -> _Attempt | None:
        values = self._function_values()
        if values != self._values:
            first, self._values = self._values is None, values
            if first:
                self._shelf[self._python, tuple(values)] = self._attempts, self._outcomes
            else:
                self._turn_to_values("values that the loss function sees keep changing")
        self._layout, self._chosen = key, self._outcomes.chosen(key, inputs)
        if self._chosen is not None:
            return self._attempt_of_outcome(key, self._chosen)
        attempt = self._attempts.get(key)
        if attempt is None and key is not None and len(self._attempts) < MAX_SHAPES:
            attempt = self._attempts[key] = _Attempt()
        return attempt

    def _turn_to_another_way(self) -> None:
        """Forget what was recorded before a part of the code turned to run its models one by one, in this shard or in
        another: the step as written rounds in another way since."""
        for attempt in self._attempts.values():
            self._give_up(attempt, alone=False)
        self._attempts, self._outcomes, self._facts = {}, Outcomes(), ()
        self._shelf = {(self._python, tuple(self._values or ())): (self._attempts, self._outcomes)}
        self._turned, self.replayed = self._turns(), False

    def python_changed(self, names: Sequence[str], state: Any) -> None:
        """Turn to the recordings for the Python state of the modules that is `state` now, for `names` have changed."""
        self._python = state
        if self._values is not None and names and self.refusal is None:
            self._turn_to_values(f"the model's Python value {names[0]} keeps changing")

    def _turn_to_values(self, why: str) -> None:
        """Turn to the recordings for the Python values of now, or begin with them."""
        kept = self._shelf.get((self._python, tuple(self._values or ())))
        if kept is None:
            self._attempts, self._outcomes = {}, Outcomes()
            self._shelf[self._python, tuple(self._values or ())] = self._attempts, self._outcomes
            self.replayed = False
            self._changed(why)
        else:
            self._attempts, self._outcomes = kept
        self._facts = ()

    def _look_around(self, attempt: _Attempt, key: Any) -> None:
        """Take over a recording of another shard if there is one, or wait for the shard that is at work on it."""
        known, subject = self._known, self._subject
        if known is None or subject is None or guards.hook(self._array) is not None:
            attempt.stage = "warm up"
            return
        if not attempt.facts:
            autocast = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
            self._facts = self._facts or subject.facts(known.era)
            attempt.facts = *self._facts, key, tuple(self._values or ()), autocast
        found = known.find(attempt.facts)
        served = found.serve(subject) if found is not None else None
        if served is not None:
            attempt.replay, attempt.read = served
            attempt.stage = "replay"
        elif found is None and not known.lead(attempt.facts, self):
            attempt.stage = "wait"
        else:
            pattern = known.pattern(attempt.facts)
            attempt.stage = "warm up" if pattern is None and not attempt.warm else "record"
            if pattern is not None:
                subject.prepare(pattern.plans)

    def _attempt_of_outcome(self, key: Any, chosen: int) -> _Attempt | None:
        """Find the attempt for a batch of which Python reads values; one of its own for each outcome."""
        attempt = self._attempts.get((key, chosen))
        if attempt is None and not self._outcomes.full(key):
            attempt = self._attempts[key, chosen] = _Attempt()
            attempt.stage, attempt.warm = "record", True
        elif attempt is None and self._outcomes.refusal is not None:
            self._refuse(self._outcomes.refusal)
        return attempt

    def _watched(
        self, attempt: _Attempt, batch: Any, hyper: Sequence[Any], inputs: list[torch.Tensor]
    ) -> torch.Tensor:
        """A step on the way to a replay; if it fails, its layout of batch is watched from the start the next time."""
        try:
            if attempt.stage == "record":
                return self._record(attempt, batch, hyper, inputs)
            if attempt.stage == "compare":
                return self._compare(attempt, batch, hyper, inputs)
            return self._as_written(attempt, batch, hyper)
        except BaseException:
            self._give_up(attempt, alone=False)
            self._drop(attempt)
            raise

    def _as_written(self, attempt: _Attempt, batch: Any, hyper: Sequence[Any]) -> torch.Tensor:
        losses = self._train(batch, hyper)
        attempt.warm = True
        if attempt.stage == "warm up":
            attempt.stage = "record"  # state that is made late is there by then
        if self._values != self._function_values():
            self._refuse("the loss function changes a value outside of it")
        return losses

    def _give_up(self, attempt: _Attempt, alone: bool = True) -> None:
        if self._known is not None and attempt.facts:
            self._known.give_up(attempt.facts, self, alone)

    def _changed(self, why: str) -> None:
        """Count a new recording of the step; give capture up after too many."""
        self._changes += 1
        if self._changes > MAX_CHANGES:
            self._refuse(why)

    def _refuse(self, why: str) -> None:
        self.refusal = why
        for attempt in self._attempts.values():
            self._give_up(attempt)
        self._attempts.clear()
        self._shelf.clear()
        self.replayed = False

    def _record(
        self, attempt: _Attempt, batch: Any, hyper: Sequence[Any], inputs: list[torch.Tensor]
    ) -> torch.Tensor:
        place = guards.hook(self._array)
        if place is not None:
            self._refuse(f"there is a hook on {place}")
            return self._train(batch, hyper)
        attempt.values, ways = python_values(self._array), guards.ways(self._array)
        batch, hyper = self._replays.fixed(batch, hyper)
        inputs = guards.flatten(batch)[0]
        for own in hyper:
            inputs += own.values()
        losses, recording = self._watch(batch, hyper, inputs)
        given = recording.inputs[: len(inputs) - self._fixed]
        if any(recording.storage[slot] in recording.written for slot in given):
            recording.refuse(f"the step writes into its batch{recording.writer_of(given)}")
        if any(recording.storage[slot] in recording.written for slot in recording.read):
            changes = recording.writer_of(recording.read)
            recording.refuse(f"Python looks into a tensor that the step changes{changes}")
        if recording.refusal is None:
            try:
                attempt.replay = self._replays.prepare(self._train, recording, batch, hyper, inputs)
                attempt.recording = recording
                attempt.read = _reads(recording, inputs)
                attempt.stage = "replay" if self._follows(attempt) else "compare"
                self._choose_by_outcome(attempt, recording)
            except NotScriptable as error:
                recording.refuse(str(error))
        attempt.ways = guards.ways(self._array)
        turned = attempt.ways != ways
        if turned or (not attempt.warm and attempt.stage != "replay"):
            attempt.stage, recording.refusal = "record", None  # once more, when all is there
        attempt.warm = True
        if recording.refusal is not None:
            self._refuse(recording.refusal)
        return losses

    def _follows(self, attempt: _Attempt) -> bool:
        """Return True if the recording is a known list of operators: then nothing is left to be compared."""
        if self._known is None or self._subject is None or not attempt.facts:
            return False
        if self._values != self._function_values() or self._side_effect(attempt) is not None:
            return False
        made = self._proven(attempt)
        if made is None or not self._known.follows(made):
            return False
        self._keep(attempt, made)
        attempt.recording = None
        return True

    def _proven(self, attempt: _Attempt) -> Proven | None:
        assert self._subject is not None
        script = attempt.replay
        if not isinstance(script, Script) or script.guard is not None:
            return None  # it is right for some batches only
        return prove(attempt.facts, self._subject, script, attempt.read)

    def _keep(self, attempt: _Attempt, made: Proven | None) -> None:
        """Offer a recording to other shards."""
        if self._known is None or not attempt.facts:
            return
        if made is not None:
            self._known.keep(made)
        self._give_up(attempt, alone=made is None or not made.settled)

    def _choose_by_outcome(self, attempt: _Attempt, recording: StepRecording) -> None:
        """If Python has read values of the batch, use the recording for batches with the same values only."""
        guard = attempt.replay.guard if attempt.replay is not None else None
        if guard is None:
            return
        place = recording.calls[recording.looks[0]].place
        number = self._outcomes.add(self._layout, self._chosen, guard, place)
        self._drop(attempt)
        self._attempts[self._layout, number] = attempt

    def _drop(self, attempt: _Attempt) -> None:
        for key in [key for key, other in self._attempts.items() if other is attempt]:
            del self._attempts[key]

    def _watch(
        self, batch: Any, hyper: Sequence[Any], inputs: list[torch.Tensor]
    ) -> tuple[torch.Tensor, StepRecording]:
        recorder = StepRecorder(inputs, self._fixed, self._replays.seeded)
        with recorder, HiddenReads(recorder.recording):
            losses = self._train(batch, hyper)
        recorder.recording.losses = recorder.slot(losses).index
        return losses, recorder.recording

    def _compare(
        self, attempt: _Attempt, batch: Any, hyper: Sequence[Any], inputs: list[torch.Tensor]
    ) -> torch.Tensor:
        """Run the step once replayed and once as written, from the same state."""
        recording, replay = attempt.recording, attempt.replay
        assert recording is not None
        assert replay is not None
        changed = _once([*recording.written_externals(), *self._state()])
        other = [t.detach().clone() for t in changed]
        why, replayed = None, None
        try:
            replayed = replay(inputs)
        except ValueChanged as error:
            self._changed(str(error))
            return self._train(batch, hyper) if self.refusal else self._record(attempt, batch, hyper, inputs)
        except Exception as error:  # whatever a replay fails with, the step as written follows
            why = described(error)
        for tensor, value in zip(changed, other, strict=True):  # exchanged: one copy of the state is enough
            after = tensor.detach().clone()
            tensor.detach().copy_(value)
            value.copy_(after)
        losses, second = self._watch(batch, hyper, inputs)
        if guards.ways(self._array) != attempt.ways:
            attempt.stage = "record"
            return losses
        why = why or second.refusal or difference(recording, second) or self._side_effect(attempt)
        pairs = zip([replayed, *other], [losses, *changed], strict=True)
        if why is None and not all(self._replays.same(a, b.detach()) for a, b in pairs if a is not None):
            why = "a replay gives other bits than the step as written"
        if why is not None:
            self._refuse(why)
        else:
            self._keep(attempt, self._proven(attempt) if attempt.facts else None)
        attempt.stage, attempt.recording = "replay", None
        return losses

    def _side_effect(self, attempt: _Attempt) -> str | None:
        now = python_values(self._array)
        for name in {**attempt.values, **now}:
            if attempt.values.get(name) != now.get(name):
                return f"a step changes the Python value {name}"
        return None


def _reads(recording: StepRecording, inputs: list[torch.Tensor]) -> list[Read]:
    places = {slot: place for place, slot in enumerate(recording.inputs)}
    reads = []
    for slot in sorted(recording.read):
        place = places.get(slot)
        tensor = recording.external[slot] if place is None else inputs[place]
        reads.append(Read(place, tensor, tensor.detach().clone(), version=tensor._version))
    return reads


def difference(first: StepRecording, second: StepRecording) -> str | None:
    """Explain why two recordings are not one and the same step; None if they are."""
    for a, b in zip(first.calls, second.calls, strict=False):
        if a.op is not b.op:
            return f"one step calls {a.name} where the next calls {b.name}{b.place}"
        if repr(a.arguments) != repr(b.arguments):
            return f"{a.name} gets {_first_difference(a.arguments, b.arguments)}{b.place}"
    if len(first.calls) != len(second.calls):
        return f"one step has {len(first.calls)} operators, the next {len(second.calls)}"
    for slot, tensor in first.external.items():
        other = second.external.get(slot)
        if other is None:
            return "two steps use different tensors"
        if tensor.data_ptr() != other.data_ptr() and (
            first.storage[slot] in first.written or not same_bits(tensor, other)
        ):
            return f"a tensor {list(tensor.shape)} is another one in the next step"
    return None


def _first_difference(a: Sequence[Any], b: Sequence[Any]) -> str:
    for x, y in zip(a, b, strict=True):
        if repr(x) != repr(y):
            return f"{x!r} in one step and {y!r} in the next"
    return "other arguments in the next step"


def _once(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Drop tensors that lie where another one does, in whatever order of dimensions."""
    return list({_place(t): t for t in tensors}.values())


def _place(t: torch.Tensor) -> tuple[Any, ...]:
    reach = 1 + sum((size - 1) * stride for size, stride in zip(t.shape, t.stride(), strict=True))
    if reach == t.numel():  # without gaps
        return t.data_ptr(), t.numel(), t.dtype
    return t.data_ptr(), t.shape, t.stride(), t.dtype
