# SPDX-License-Identifier: MIT
"""Captured training step: recorded, compared with the step as written, then replayed without Python."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..._torch import no_capture
from . import guards
from .arithmetic import is_number
from .attempt import Attempt, NumberedReplay
from .batch_numbers import BatchNumbers, on_filled
from .changing_numbers import NO_STATE, ChangingNumbers, HeldState
from .comparison import reads_of
from .cuda import CudaGraphs
from .followed_step import FollowedStep
from .library import Facts, Proven, Recordings, Subject, prove
from .looks import Looks, Outcomes, Replay, ValueChanged
from .numbered_step import NumberedSteps
from .placed import Read
from .python_state import python_numbers
from .reach import Reach
from .script import NotScriptable, Scripts
from .watch import StepInputs, StepWatch, Train, refuse_writes_under_reads

MAX_SHAPES = 8  # layouts of batches that are captured; others run as written
_CHANGES_OUTSIDE = "the loss function changes a value outside of it"
MAX_CHANGES = 8  # times that a step is recorded anew because a value was another one


class CapturedStep:
    """`train(batch, hyper)`, run as written until it is known to be a fixed list of operators, then as that list.

    The first step of a layout of batch is recorded, and the second is run twice from the same state: replayed, and as
    written. If both leave the same bits everywhere, later steps are replayed. If the first step differs, because it
    made state that stays, the next is recorded again. All of them are training steps like any other.

    If another shard, or these models before an edit, has a recording of the same step, that is replayed at once
    (`Recordings`). Another layout of batch is recorded in its first step, and replayed from the second on if the list
    differs from a known one in numbers only.
    """

    def __init__(
        self,
        train: Train,
        array: torch.nn.Module,
        function: Callable[..., Any] | tuple[Callable[..., Any], ...],
        state: Callable[[], Sequence[torch.Tensor]],
        replays: Scripts | CudaGraphs,
        subject: Subject | None = None,
        known: Recordings | None = None,
        reach: Reach | None = None,
    ) -> None:
        """`state` lists the tensors that a step may change without an operator that names them: parameters, optimizer
        state. `subject` and `known` are given where recordings are shared with other shards, `reach` if it is known."""
        self._given = BatchNumbers()
        self._train, self._array, self._replays = on_filled(train, self._given), array, replays
        self._subject, self._known = subject, known
        reach = copy.copy(reach or guards.reach_of(function, array))
        self._readers, self._code = tuple(reach.readers), reach.code
        reach.readers = [*reach.readers, self._given]
        self._sees_numbers = any(is_number(v) for reader in self._readers for _, v, _ in reader.places())
        self._turns = guards.turns(array)
        self._values: list[Any] | None = None
        self._python: HeldState = NO_STATE
        self._moved: str | None = None  # Python value of the modules that has changed since the last step
        self._numbers = ChangingNumbers(reach, array)
        self._modules = [type(module) for _, module in guards.modules_of(array)]
        if known is not None:
            self._numbers.go_on_with(known.numbers_of((self._code, self._modules)))
        self._watch = StepWatch(self._train, array, state, replays, self._numbers)
        self._numbered = NumberedSteps(self._watch)
        self.alone = True  # nobody else runs the code meanwhile
        self._wants_alone = False  # for the next step that no replay is for
        self.reset()

    def reset(self) -> None:
        """Forget what was recorded; the next steps are watched again."""
        self._attempts: dict[Any, Attempt] = {}
        self._warm: set[Any] = set()  # layouts of batch of which a step was made
        self._outcomes = Outcomes()
        self._shelf: dict[Any, tuple[dict[Any, Attempt], Outcomes]] = {}  # by Python state and values
        self._key: Any = None
        self._chosen: int | None = None
        self.refusal: str | None = no_capture
        self.replayed = False
        self._changes = 0
        self._unknown = 0  # steps on layouts that are not recorded; those on others count against them
        self._facts: Facts = ()
        self._turned = self._turns()

    @property
    def mode(self) -> str:
        """`captured`, `warming up`, or `eager: ` and the reason."""
        if self.refusal is not None:
            return f"eager: {self.refusal}"
        return "captured" if self.replayed else "warming up"

    @property
    def reads_live(self) -> bool:
        """True if the next step may read numbers that the user changes between steps; the caller then waits for it."""
        return self._numbers.seen or (self._sees_numbers and not self.replayed)

    @property
    def follows(self) -> bool:
        """True if the next step may put stand-ins in the place of numbers; no other thread may run the code then."""
        if not self._numbers.places or self.refusal is not None:
            return False
        return self._wants_alone or not self.replayed

    def read(self) -> list[Any]:
        """Read all values that the code can see outside of its arguments."""
        return [read() for read in self._readers]

    def _now(self) -> list[Any]:
        """Read these numbers, and those of the current batch."""
        return [*self.read(), self._given()]

    def __call__(
        self, batch: Any, hyper: Sequence[dict[str, torch.Tensor]], seen: list[Any] | None = None
    ) -> torch.Tensor:
        """Make a step; `seen` is what `read` has returned when the step was asked for."""
        if self.refusal is not None:
            return self._train(batch, hyper)
        if self._turns() != self._turned:
            self._turn_to_another_way()
        inputs, key, numbers = guards.flatten(batch)
        self._given.take(numbers)
        given = len(inputs)
        for own in hyper:
            inputs += own.values()
        attempt = self._attempt(key, inputs, [*(self.read() if seen is None else seen), numbers])
        if attempt is None or self.refusal is not None:
            return self._train(batch, hyper)
        if attempt.stage in ("begin", "wait"):
            attempt = self._look_around(attempt, key, inputs)
            if attempt is None:
                return self._train(batch, hyper)
        if attempt.stage == "follow" and attempt.numbered:
            try:
                losses = self._numbered.replay(attempt, inputs, self._values or ())
            except ValueChanged as error:
                attempt.numbered.clear()
                self._changed(str(error))
                losses = None
            self.replayed = losses is not None
            if losses is not None:
                return losses
            if self.refusal is not None:
                return self._train(batch, hyper)
        elif attempt.stage == "replay" and attempt.replay is not None:
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
        return self._watched(attempt, StepInputs(batch, hyper, inputs, len(inputs) - given))

    def _attempt(self, key: Any, inputs: Sequence[torch.Tensor], values: list[Any]) -> Attempt | None:
        if values != self._values or self._moved is not None:
            self._turn_to_values(values)
        self._layout = key
        if self._outcomes.knows(key):
            return self._attempt_of_outcome(key, inputs)
        self._chosen = None
        attempt = self._attempts.get(key)
        if attempt is None and key is not None and len(self._attempts) < MAX_SHAPES:
            attempt = self._attempts[key] = Attempt(warm=key in self._warm)
        if attempt is None:
            self._count_unknown_layout()
        elif self._unknown:
            self._unknown -= 1
        return attempt

    def _count_unknown_layout(self) -> None:
        """Count a batch of a layout that is not recorded; give capture up if most are."""
        self._unknown += 1
        self.replayed = False
        if self._unknown > 2 * MAX_SHAPES:
            self._refuse(
                f"batches of more than {MAX_SHAPES} layouts keep coming, or of values that are no tensors"
            )

    def _turn_to_another_way(self) -> None:
        """Forget recordings from before a part of the code began to run its models one by one, in this shard or
        another: the step as written rounds differently since then."""
        for attempt in self._attempts.values():
            self._give_up(attempt, alone=False)
        self._attempts, self._outcomes, self._facts, self._warm = {}, Outcomes(), (), set()
        self._shelf = {self._key: (self._attempts, self._outcomes)}
        self._turned, self.replayed = self._turns(), False

    def python_changed(self, names: Sequence[str], state: HeldState) -> None:
        """Take note that `names` have changed in the Python state of the modules, which is `state` now."""
        if not self._replays.seeded:
            self._numbers.hold(self._python, state)
        self._python = state
        self._moved = next(iter(names), self._moved)

    def _turn_to_values(self, values: list[Any]) -> None:
        """Use the recordings for the current Python values, or begin them."""
        before, self._values = self._values, values
        why = "values that the loss function sees keep changing"
        if self._moved is not None:
            why, self._moved = f"the model's Python value {self._moved} keeps changing", None
        if before is not None and not self._replays.seeded:
            self._numbers.see(before, values)
        self._turn_to_key(why, first=before is None)

    def _turn_to_key(self, why: str, first: bool = False) -> None:
        """Use the recordings for all values that are not their inputs."""
        numbers = self._numbers
        key = numbers.rest_held(self._python), numbers.rest_seen(self._values or ()), tuple(numbers.places)
        if key == self._key:
            return
        self._key = key
        if self._known is not None and (numbers.places or numbers.why is not None):
            self._known.note_numbers((self._code, self._modules), numbers.places)
        kept = self._shelf.get(key)
        if kept is not None:
            self._attempts, self._outcomes = kept
        else:
            if not first:
                self._attempts, self._outcomes = {}, Outcomes()
                self.replayed = False
                self._changed(numbers.why or why)
            self._shelf[key] = self._attempts, self._outcomes
        self._facts = ()

    def _look_around(self, attempt: Attempt, key: Any, inputs: Sequence[torch.Tensor]) -> Attempt | None:
        """Take over the recordings of another shard if there are any, or wait for the shard that makes one."""
        known, subject = self._known, self._subject
        if known is None or subject is None or self._numbers.deep or guards.hook(self._array) is not None:
            attempt.stage = "record" if attempt.warm or not self._replays.warms_up else "warm up"
            return attempt
        if not attempt.facts:
            self._facts = self._facts or self._facts_of(subject, known.era)
            seen = repr(self._numbers.rest_seen(self._values or ()))  # 1 is not 1.0
            attempt.facts = *self._facts, key, seen, _torch_state(), tuple(self._numbers.places)
        found = known.find(attempt.facts) or known.adopt(attempt.facts, self._objects())
        if self._take_over(found, attempt, key):
            return self._attempt_of_outcome(key, inputs) if self._outcomes.knows(key) else attempt
        if not found and not known.lead(attempt.facts, self):
            attempt.stage = "wait"
            return attempt
        pattern = known.pattern(attempt.facts)
        attempt.stage = "record"
        if pattern is not None:
            subject.prepare(pattern.plans)
        return attempt

    def _take_over(self, found: Sequence[Proven], attempt: Attempt, key: Any) -> bool:
        """Replay recordings of the step of `attempt` from now on: its only one, or one for each outcome of what Python
        reads of a batch; return True if there is a new one."""
        assert self._subject is not None
        taken = False
        for made in found:
            if self._outcomes.has(key, made.looks) or any(
                one.step is made.numbers for one in attempt.numbered
            ):
                continue
            served = made.serve(self._subject)
            if served is None:
                continue
            taken, (replay, read) = True, served
            if made.numbers is not None:
                attempt.numbered.append(NumberedReplay(made.numbers, replay, read))
                attempt.stage = "follow"
                continue
            if replay.guard is None:
                attempt.replay, attempt.read, attempt.stage = replay, read, "replay"
                break
            own = Attempt("replay", attempt.facts, warm=True, replay=replay, read=read)
            self._add_outcome(own, key, None, replay.guard, made.looks)
        if self._outcomes.knows(key):
            self._drop(attempt)
        return taken

    def _facts_of(self, subject: Subject, era: object) -> Facts:
        """List what the step depends on beside values; code first, for other layouts have the same."""
        code, *layouts = subject.facts(era, {(path[0], key) for path, key in self._numbers.held_keys})
        return (era if self._code is None else self._code, code), *layouts

    def _objects(self) -> list[Any]:
        """List the objects that stand in `read` by their identity."""
        return [one for reader in self._readers for one in reader.objects()]

    def _attempt_of_outcome(self, key: Any, inputs: Sequence[torch.Tensor]) -> Attempt | None:
        """Find the attempt for a batch of which Python reads values; one of its own for each outcome."""
        chosen = self._outcomes.chosen(key, inputs)
        facts = self._outcomes.facts(key)
        if chosen < 0 and facts and self._taken_since(facts, key):
            chosen = self._outcomes.chosen(key, inputs)
        self._chosen = chosen
        attempt = self._attempts.get((key, chosen))
        if attempt is None and not self._outcomes.full(key):
            attempt = self._attempts[key, chosen] = Attempt("record", facts, warm=True)
        elif attempt is None and self._outcomes.refusal is not None:
            self._refuse(self._outcomes.refusal)
        return attempt

    def _taken_since(self, facts: Facts, key: Any) -> bool:
        """Take over recordings that other shards have made meanwhile, of other outcomes."""
        return self._known is not None and self._take_over(self._known.find(facts), Attempt(facts=facts), key)

    def _watched(self, attempt: Attempt, given: StepInputs) -> torch.Tensor:
        """Run a step on the way to a replay; after an error its layout of batch starts from the beginning."""
        try:
            if attempt.stage == "record":
                return self._record(attempt, given)
            if attempt.stage == "follow":
                self._wants_alone = not self.alone
                if self.alone:
                    return self._go_on_with_numbers(attempt, given)
            if attempt.stage == "compare":
                return self._compare(attempt, given)
            return self._as_written(attempt, given)
        except BaseException:
            self._give_up(attempt, alone=False)
            self._drop(attempt)
            raise

    def _as_written(self, attempt: Attempt, given: StepInputs) -> torch.Tensor:
        before = python_numbers(self._array)
        losses = self._watch.run(given)
        attempt.warm = True
        self._warm.add(self._layout)
        self._note_counters(before)
        if attempt.stage == "warm up":
            attempt.stage = "record"  # state that is made late is there by then
        if self._values != self._now():
            self._refuse(_CHANGES_OUTSIDE)
        return losses

    def _note_counters(self, before: HeldState) -> None:
        """Take note of numbers that the step itself has changed in the modules."""
        if self._replays.seeded or self.refusal is not None:
            return
        known = len(self._numbers.places)
        self._numbers.hold(before, python_numbers(self._array))
        if len(self._numbers.places) > known:
            self._turn_to_key("numbers that the step itself changes keep becoming more")

    def _give_up(self, attempt: Attempt, alone: bool = True) -> None:
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

    def _fixed(self, given: StepInputs) -> StepInputs:
        """Return the inputs that the recorded step runs on."""
        batch, hyper = self._replays.fixed(given.batch, given.hyper)
        tensors = guards.flatten(batch)[0]
        for own in hyper:
            tensors += own.values()
        return StepInputs(batch, hyper, tensors, given.fixed)

    def _record(self, attempt: Attempt, given: StepInputs) -> torch.Tensor:
        place = guards.hook(self._array)
        if place is not None:
            self._refuse(f"there is a hook on {place}")
            return self._watch.run(given)
        attempt.values, ways = self._watch.python_values(), guards.ways(self._array)
        numbers = python_numbers(self._array)
        given = self._fixed(given)
        losses, recording = self._watch.record(given)
        refuse_writes_under_reads(recording, len(given.tensors) - given.fixed)
        if recording.refusal is None and self._numbers.places:
            attempt.recording, attempt.stage = recording, "follow"
        elif recording.refusal is None:
            try:
                attempt.replay = self._replays.prepare(
                    self._train, recording, given.batch, given.hyper, given.tensors
                )
                attempt.recording = recording
                attempt.read, attempt.looks = reads_of(recording, given.tensors), Looks.of(recording)
                attempt.stage = "replay" if self._follows(attempt) else "compare"
                self._choose_by_outcome(attempt, attempt.looks, attempt.replay)
            except NotScriptable as error:
                recording.refuse(str(error))
        attempt.ways = guards.ways(self._array)
        attempt.first = not attempt.warm
        if attempt.ways != ways or (attempt.first and recording.refusal is not None):
            attempt.stage, recording.refusal = "record", None  # once more, when all is there
        if attempt.first and self._values != self._now():
            recording.refuse(_CHANGES_OUTSIDE)
        attempt.warm = True
        self._warm.add(self._layout)
        if recording.refusal is not None:
            self._refuse(recording.refusal)
        self._note_counters(numbers)
        return losses

    def _follows(self, attempt: Attempt) -> bool:
        """Return True if the recording is a known list of operators, which needs no comparison."""
        if self._known is None or attempt.replay is None:
            return False
        if self._values != self._now() or self._watch.side_effect(attempt) is not None:
            return False
        made = attempt.made = self._proven(attempt, attempt.replay, attempt.read)
        if made is None or not self._known.follows(made):
            return False
        self._keep(attempt, made)
        attempt.recording = None
        return True

    def _proven(
        self, attempt: Attempt, replay: Replay, read: Sequence[Read], numbers: FollowedStep | None = None
    ) -> Proven | None:
        if self._subject is None or not attempt.facts or (numbers is not None and replay.guard is not None):
            return None
        return prove(attempt.facts, self._subject, replay, read, attempt.looks, numbers)

    def _keep(self, attempt: Attempt, made: Proven | None) -> None:
        """Offer a recording to other shards."""
        if self._known is None or not attempt.facts:
            return
        if made is not None:
            self._known.keep(made, self._objects())
        self._give_up(attempt, alone=made is None or not made.settled)

    def _choose_by_outcome(self, attempt: Attempt, looks: Looks, replay: Replay) -> None:
        """Restrict the recording to batches with the same values, if Python has read values of the batch."""
        if replay.guard is None:
            return
        self._drop(attempt)
        self._add_outcome(attempt, self._layout, self._chosen, replay.guard, looks)

    def _add_outcome(
        self, attempt: Attempt, key: Any, chosen: int | None, guard: Replay, looks: Looks
    ) -> None:
        self._attempts[key, self._outcomes.add(key, chosen, guard, looks, attempt.facts)] = attempt

    def _drop(self, attempt: Attempt) -> None:
        for key in [key for key, other in self._attempts.items() if other is attempt]:
            del self._attempts[key]

    def _compare(self, attempt: Attempt, given: StepInputs) -> torch.Tensor:
        """Run the step once replayed and once as written, from the same state."""
        assert attempt.recording is not None
        assert attempt.replay is not None
        try:
            losses, why = self._watch.compare(attempt, attempt.recording, attempt.replay, (), given)
        except ValueChanged as error:
            self._changed(str(error))
            return self._watch.run(given) if self.refusal else self._record(attempt, given)
        if attempt.stage == "record":
            return losses
        if why is not None and attempt.first:
            attempt.stage = "record"  # the first step made state that stays
            return losses
        if why is not None:
            self._refuse(why)
        else:
            self._keep(attempt, attempt.made)
        attempt.stage, attempt.recording = "replay", None
        return losses

    def _go_on_with_numbers(self, attempt: Attempt, given: StepInputs) -> torch.Tensor:
        """Take a step with numbers as inputs on the way to its replay."""
        if attempt.recording is None:  # the replays at hand are those of others
            return self._record(attempt, given)
        ready = len(attempt.numbered)
        try:
            losses, why, followed = self._numbered.go_on(attempt, given, self._values or ())
        except ValueChanged as error:
            self._changed(str(error))
            return self._watch.run(given)
        for one in attempt.numbered[ready:]:
            self._keep(attempt, self._proven(attempt, one.replay, one.read, one.step))
        if followed is not None:
            self._choose_by_outcome(attempt, Looks.of(followed.recording), attempt.pending[-1].replay)
        if why is not None:  # they are values like others, that a recording is made for
            self._give_up(attempt)
            self._numbers.give_up(why)
            self._turn_to_key(why)
        return losses


def _torch_state() -> tuple[Any, ...]:
    """List the settings of torch that decide which operators a step calls."""
    return (
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.are_deterministic_algorithms_enabled(),
    )
