# SPDX-License-Identifier: MIT
"""The captured step of one shard: for each step it chooses between a replay, a recording and a comparison.

Recordings are found first by the Python values that the code reads (`_shelf`), then by the layout of the batch
(`Attempt`), then by the path that the step takes (`Way`). A change of a value so costs nothing when it comes back.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from ..._fuse import differ_by_numbers, layers_set
from ..._state import PLAIN
from ..._torch import no_capture
from ...nn.array_module import ArrayModule
from . import guards
from .comparison import Audit, reads_of
from .cuda import CudaGraphs, Replay
from .exchange import Attempt, Exchange, Way
from .library import Recordings
from .looks import Looks
from .numbers import NO_STATE, BatchNumbers, ChangingNumbers, HeldState, NotFollowed, on_filled
from .plan import StepRecording
from .python_state import python_numbers
from .reach import Reach
from .record import WritesElsewhere
from .script import NotScriptable, Scripts
from .stand_ins import is_number
from .unseen import Unseen
from .watched_step import StepInputs, StepWatch, refuse_writes_under_reads

if TYPE_CHECKING:
    from ..shard import Shard

MAX_SHAPES = 8  # layouts of batches that are captured; others run as written
Around = Callable[["CapturedStep"], AbstractContextManager[Any]]
_CHANGES_OUTSIDE = "the loss function changes a value outside of it"
MAX_CHANGES = 8  # times that a step is recorded anew because a value was another one
_FIRST_LAYOUTS = 3  # whose first step may be refused, as for state that it makes; then no more are recorded in vain


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
        self, subject: Shard, replays: Scripts | CudaGraphs, recordings: Recordings | None, reach: Reach
    ) -> None:
        """`recordings` are those that shards may use of each other, `reach` is what the code can see."""
        self._given, self._array, self._replays = BatchNumbers(), subject.array, replays
        self._train = on_filled(replays.steps(subject.train, subject.array), self._given)
        self._subject, array, reach = subject, subject.array, copy.copy(reach)
        self._readers, shared = tuple(reach.readers), copy.copy(reach)
        reach.readers = [*reach.readers, self._given]
        self._sees_numbers = any(is_number(v) for reader in self._readers for _, v, _ in reader.places())
        self._turns = guards.turns(array)
        self._values: list[Any] | None = None
        self._python: HeldState = NO_STATE
        self._moved: str | None = None  # Python value of the modules that has changed since the last step
        self._numbers = ChangingNumbers(reach, array)
        self._exchange = Exchange(subject, recordings, shared, self._numbers)
        self._unseen = Unseen(shared)
        self._watch = StepWatch(self._train, array, subject.state, replays, self._numbers, self._unseen)
        self.parted = False  # models that run one by one have decided on their ways in one recorded step
        self.alone = True  # nobody else runs the code meanwhile
        self._wants_alone = False  # for the next step that no replay is for
        self.audits = False  # the next step, if it is a replay, is run both ways
        self.audit: Audit | None = None  # of the last step
        self.around_python: Callable[[], Around | None] | None = None  # for what a step that no replay is for runs in
        self.changed_outside = ""  # that step has: the code has changed values outside of it, or drawn numbers
        self._attempts: dict[Any, Attempt] = {}  # by layout of batch
        self._warm: set[Any] = set()  # layouts of batch of which a step was made
        self._shelf: dict[Any, dict[Any, Attempt]] = {}  # by Python state and values
        self._key: Any = None
        self._ready: tuple[list[Any], Any, Replay] | None = None  # values, layout and replay of the last step
        self.refusal: str | None = no_capture
        self.replayed = False
        self._changes, self._changed_by = 0, ""  # why the last recording did not serve
        self._unknown = 0  # steps on layouts that are not recorded; those on others count against them
        self._refused: dict[Any, str] = {}  # by layout, why its first recording was; the same again is final
        self._turned, self._settings = self._turns(), _settings(array)

    @property
    def mode(self) -> str:
        """`captured`, `warming up`, or `eager: ` and the reason."""
        if self.refusal is not None:
            return f"eager: {self.refusal}"
        return "captured" if self.replayed else "warming up"

    @property
    def unsettled(self) -> str:
        """Reason for which no replay is found although steps are recorded; empty if there is none."""
        if any(way.step is not None for attempt in self._attempts.values() for way in attempt.paths):
            return _looked_at(self._attempts.values())
        return next(filter(None, (attempt.paths.doubt for attempt in self._attempts.values())), self._changed_by)

    @property
    def leaves(self) -> bool:
        """True if a step, also a replayed one, leaves tensors in attributes of modules."""
        return self._watch.leaves or self._exchange.leaves

    @property
    def quiet(self) -> bool:
        """True if the last step was a replay of operators alone, which changes nothing in Python."""
        return self.replayed and not (self.leaves or self._numbers.places)

    @property
    def reads_live(self) -> bool:
        """True if the next step may read numbers that the user changes between steps; the caller then waits for it."""
        return self._numbers.seen or (self._sees_numbers and not self.replayed)

    @property
    def follows(self) -> bool:
        """True if the next step may put stand-ins in the place of numbers; no other thread may run the code then."""
        if self.refusal is not None:
            return False
        return self._wants_alone or (bool(self._numbers.places) and not self.replayed)

    def programs(self) -> set[Any]:
        """Collect the programs of all recordings that can be replayed, now or once earlier Python values are back."""
        inputs = tuple(self._numbers.places)  # recordings from before a number became an input serve no more
        shelf = [kept for key, kept in list(self._shelf.items()) if key[-1] == inputs]
        ways = [way for kept in shelf for attempt in list(kept.values()) for way in attempt.paths]
        return {way.replay.program for way in ways if way.stage == "replay" and way.replay is not None}

    def read(self) -> list[Any]:
        """Read all values that the code can see outside of its arguments."""
        return [read() for read in self._readers]

    def _now(self) -> list[Any]:
        """Read these numbers, and those of the current batch."""
        return [*self.read(), self._given()]

    def __call__(
        self, batch: Any, hyper: Sequence[dict[str, torch.Tensor]], seen: list[Any] | None = None, flat: Any = None
    ) -> torch.Tensor:
        """Make a step.

        Args:
            seen: values that the code sees, read when the step was asked for; the same list while nothing has changed.
            flat: the batch, flattened, if that is known.
        """
        if self.refusal is not None:
            return self._train(batch, hyper)
        tensors, key, numbers = guards.flatten(batch) if flat is None else flat
        given, inputs = len(tensors), [*tensors]
        for own in hyper:
            inputs += own.values()
        turned = not self._turned or self._turns() == self._turned
        if self._ready is not None and turned and not self.audits:
            values, layout, replay = self._ready
            if values is seen and layout == key:
                return replay(inputs)
        self._ready = None
        if not turned:
            self._turn_to_another_way()
        self._given.take(numbers)
        attempt = self._attempt(key, [*(self.read() if seen is None else seen), self._given()])
        self._numbers.begin(self._values or ())
        if attempt is None or self.refusal is not None:
            return self._eager(batch, hyper)
        if attempt.stage in ("begin", "wait"):
            first = "record" if key in self._warm or not self._replays.warms_up else "warm up"
            self._exchange.look_around(attempt, key, self._values or (), first)
        replays = [way.replay for way in attempt.paths if way.replay is not None] if self.audits else []
        self.audit = self.keep(replays) if replays else None
        losses = self._replay(attempt, inputs)
        if losses is not None and self.audit is not None:
            return self.audit.compare(losses, lambda: self._train(batch, hyper))
        if losses is not None:
            # The next on a batch of this layout is replayed at once if one recording serves all values of its tensors.
            replay = attempt.paths.only
            if replay is not None and seen is not None and not (numbers or self._numbers.places):
                self._ready = seen, key, replay
            return losses
        if self.refusal is not None:
            return self._eager(batch, hyper)
        around = (self.around_python and self.around_python()) or nullcontext
        with self._replays.recording(), around(self):
            return self._watched(attempt, StepInputs(batch, hyper, inputs, len(inputs) - given))

    def _eager(self, batch: Any, hyper: Sequence[dict[str, torch.Tensor]]) -> torch.Tensor:
        """Run a step between captures on their stream: what it leaves in autograd's graph remembers its stream."""
        with self._replays.recording():
            return self._train(batch, hyper)

    def keep(self, replays: Sequence[Replay] = ()) -> Audit | None:
        """Copy all that the next step may change, one of these replays included; None if there is no memory for it."""
        buffers = {name: b for name, b in self._array.named_buffers() if 0 not in b.stride()}
        named = {**self._watch.state(), **buffers}
        try:
            return Audit(self._watch, named, self._subject.start, replays)
        except torch.OutOfMemoryError:
            return None  # the step itself fits, its audit does not

    def _replay(self, attempt: Attempt, inputs: list[torch.Tensor]) -> torch.Tensor | None:
        """Replay a step; None if no recording is right for it."""
        if attempt.stage != "ways":
            return None
        begin = self._numbers.now()
        losses = attempt.paths.replay(inputs, begin)
        if losses is None and self._exchange.take_since(attempt):
            losses = attempt.paths.replay(inputs, begin)
        if losses is not None:
            attempt.paths.last.settle(self._numbers)
        elif attempt.paths.refusal is not None:
            self._refuse(attempt.paths.refusal)
        elif attempt.paths.outdated is not None and not begin:
            self._changed(attempt.paths.outdated)
        if losses is not None or any(way.stage == "replay" for way in attempt.paths):
            self.replayed = losses is not None
        return losses

    def _attempt(self, key: Any, values: list[Any]) -> Attempt | None:
        if self._moved is not None or values != self._values:
            self._turn_to_values(values)
        self._layout = key
        attempts = self._attempts
        attempt = attempts.get(key)
        if attempt is None and key is not None and len(attempts) < MAX_SHAPES:
            attempt = attempts[key] = Attempt()
        if attempt is not None:
            self._unknown = max(0, self._unknown - 1)
            return attempt
        self._unknown += 1
        self.replayed = False
        if self._unknown > 2 * MAX_SHAPES:
            self._refuse(f"batches of more than {MAX_SHAPES} layouts keep coming, or of values that are not tensors")
        return None

    def _turn_to_another_way(self) -> None:
        """Forget recordings from before a part of the code began to run its models one by one, in this shard or
        another, since when the eager step rounds differently, or from before a step that has set flags or layers."""
        for attempt in self._attempts.values():
            self._exchange.give_up(attempt, alone=False)
        self._exchange.forget_facts()
        self._attempts, self._warm = {}, set()
        self._shelf = {self._key: self._attempts}
        self._turned, self.replayed = self._turns(), False

    def python_changed(self, names: Sequence[str], state: HeldState) -> None:
        """Take note that `names` have changed in the Python state of the modules, which is `state` now."""
        self._ready = None
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
        seen = numbers.rest_seen(self._values or ())
        key = numbers.rest_held(self._python), seen, repr(seen), tuple(numbers.places)  # 1 is not 1.0
        if key == self._key:
            return
        self._key = key
        self._exchange.note_numbers()
        kept = self._shelf.get(key)
        if kept is not None:
            self._attempts = kept
        else:
            if not first:
                self._attempts, self.replayed = {}, False
                self._changed(numbers.why or why)
            self._shelf[key] = self._attempts
        self._exchange.forget_facts()

    def _watched(self, attempt: Attempt, given: StepInputs) -> torch.Tensor:
        """Run a step on the way to a replay; after an error its layout of batch starts from the beginning."""
        self._unseen.alone, self.changed_outside = self.alone, ""
        if self.alone:
            self._wants_alone = False
        try:
            losses = self._next_stage(attempt, given)
        except BaseException:
            self._exchange.give_up(attempt, alone=False)
            self._attempts.pop(self._layout, None)
            raise
        if self._unseen.moved:
            self.changed_outside = self._unseen.reason() or self.changed_outside
        place = guards.hook(self._array)
        if place is not None and self.refusal is None:
            self._refuse(f"there is a hook on {place}")
        if self._settings != (settings := _settings(self._array)):  # set by the step itself: those after it see them
            self._settings = settings
            self._turn_to_another_way()
        return losses

    def _next_stage(self, attempt: Attempt, given: StepInputs) -> torch.Tensor:
        if attempt.stage == "record":
            return self._record(attempt, given)
        if attempt.stage == "ways":
            if self.alone or not self._numbers.places:
                return self._new_way(attempt, given)
            self._wants_alone = True
        before = python_numbers(self._array)
        losses = self._watch.run(given)
        self._warm.add(self._layout)
        self._note_counters(before)
        if attempt.stage == "warm up":
            attempt.stage = "record"  # state that is made late is there by then
        if self._changes_outside():
            self._refuse(_CHANGES_OUTSIDE)
        return losses

    def _changes_outside(self) -> bool:
        """Return True if the step that has run has changed a value outside of it, which its replay would not do; of
        numbers that are followed the replay does."""
        before, now, rest = self._values or (), self._now(), self._numbers.rest_seen
        if before != now and rest(before) != rest(now):
            self.changed_outside = _CHANGES_OUTSIDE
        return bool(self.changed_outside)

    def _note_counters(self, before: HeldState) -> None:
        """Take note of numbers that the step itself has changed in the modules."""
        if self._replays.seeded or self.refusal is not None:
            return
        known = len(self._numbers.places)
        self._numbers.hold(before, python_numbers(self._array))
        if len(self._numbers.places) > known:
            self._turn_to_key("numbers that the step itself changes keep becoming more")

    def _changed(self, why: str) -> None:
        """Count a new recording of the step; give capture up after too many."""
        self._changes, self._changed_by = self._changes + 1, why
        if self._changes > MAX_CHANGES:
            self._refuse(why)

    def _refuse(self, why: str) -> None:
        self.refusal = why
        for attempt in self._attempts.values():
            self._exchange.give_up(attempt)
            for way in attempt.paths:
                way.replay = None  # a graph holds memory
        self._attempts.clear()
        self._shelf.clear()
        self._replays.release()
        self.replayed = False

    def _record(self, attempt: Attempt, given: StepInputs) -> torch.Tensor:
        """Run the step as written, and record it."""
        way = Way(attempt.facts, values=self._watch.python_values(), first=self._layout not in self._warm)
        ways, numbers, numbered = guards.ways(self._array), python_numbers(self._array), bool(self._numbers.places)
        given = self._watch.fixed(given)
        parts = self._subject.length > 1 and differ_by_numbers(self._array)
        losses, recording = self._watch.record(given, parts)
        self.parted = self.parted or recording.parted
        refuse_writes_under_reads(recording, len(given.tensors) - given.fixed)
        if recording.refusal is None and not (numbered or recording.partial):
            try:
                self._prepare(way, recording, given)
                way.stage = "replay" if self._follows(way) else "compare"
            except NotScriptable as error:
                recording.refuse(str(error))
        if self._unseen.in_doubt:
            self._wants_alone = True
            return losses
        way.ways = guards.ways(self._array)
        again = way.ways != ways or recording.partial
        if recording.refusal is not None:
            before = self._refused.get(self._layout)
            first = way.first and before is None and len(self._warm) < _FIRST_LAYOUTS
            again = (again or first) and recording.refusal != before
        if again and recording.refusal is not None:  # once more, when all is there
            self._refused[self._layout] = self._changed_by = recording.refusal
            recording.refusal = None
        elif recording.partial:  # what the step makes at first is there in the next
            self._refused.setdefault(self._layout, "")
        if self._changes_outside():
            recording.refuse(_CHANGES_OUTSIDE)
        self._warm.add(self._layout)
        if recording.refusal is not None:
            self._refuse(recording.refusal)
        self._note_counters(numbers)
        if again or self.refusal is not None:
            return losses
        attempt.stage = "ways"
        if numbered:
            attempt.recording, attempt.values, attempt.ways = recording, self._watch.python_values(), way.ways
        else:
            attempt.paths.add(way)
            self.parted = self.parted or (way.looks.on_the_way and differ_by_numbers(self._array))
        return losses

    def _prepare(self, way: Way, recording: StepRecording, given: StepInputs) -> None:
        way.replay, way.recording = self._watch.prepare(recording, given), recording
        way.read, way.looks = reads_of(recording, given.tensors), Looks.of(recording)

    def _follows(self, way: Way) -> bool:
        """Return True if the recording is a known list of operators, which needs no comparison."""
        if self._values != self._now() or self._watch.side_effect(way) is not None:
            return False
        return self._exchange.follows(way)

    def _compare(self, way: Way, given: StepInputs) -> torch.Tensor:
        """Run the step once replayed and once as written, from the same state."""
        losses, why = self._watch.compare(way, given)
        why = why or (_CHANGES_OUTSIDE if self._changes_outside() else None)
        self._changed_by = why or self._changed_by
        if losses is None:  # nor may the step as written fit beside the graph
            way.replay = None
            self._refuse(str(why))
            return self._watch.run(given)
        if self._unseen.in_doubt:
            self._wants_alone, way.stage = True, "record"
        if way.stage == "record":
            return losses
        if (why is not None and way.first) or _settings(self._array) != self._settings:
            way.stage = "record"  # the first step made state that stays, or this one sets what those after it see
            return losses
        if why is None:
            self._exchange.keep(way)
        elif way.step is None:
            self._refuse(why)
        else:
            self._give_numbers_up(way, why)
        way.stage, way.recording = "replay", None
        return losses

    def _new_way(self, attempt: Attempt, given: StepInputs) -> torch.Tensor:
        """Take a step that no replay is right for: compare a recording of its way, or make one."""
        begin = self._numbers.now()
        if begin and attempt.recording is None:  # the replays at hand are those of others
            return self._record(attempt, given)
        losses = attempt.paths.compare(given.tensors, lambda way: self._compare(way, given), begin)
        if losses is not None:
            return losses
        if not attempt.paths.full:
            return self._follow(attempt, given) if begin else self._record(attempt, given)
        if begin:
            self._give_numbers_up(attempt, _looked_at([attempt]))
        return self._watch.run(given)

    def _follow(self, attempt: Attempt, given: StepInputs) -> torch.Tensor:
        """Record a step with stand-ins for the numbers that change, as a trial, and as written."""
        assert attempt.recording is not None
        way, why, begin = Way(attempt.facts, values=attempt.values, ways=attempt.ways), None, self._numbers.now()
        try:
            way.step = self._watch.follow(attempt.recording, given)
        except WritesElsewhere:
            attempt.stage = "record"
        except NotFollowed as error:
            why = str(error)
        losses, second = self._watch.record(given)
        if attempt.stage == "record" or second.partial or guards.ways(self._array) != attempt.ways:
            attempt.stage = "record"
            return losses
        try:
            if way.step is not None:
                why = self._watch.other_step(way, begin, second)
                why = why or (_CHANGES_OUTSIDE if self._changes_outside() else None)
            if why is None and way.step is not None:
                self._prepare(way, way.step.recording, given)
        except NotScriptable as error:
            why = str(error)
        if why is not None:
            self._give_numbers_up(attempt, why)
        else:
            attempt.paths.add(way)
        return losses

    def _give_numbers_up(self, attempt: Attempt | Way, why: str) -> None:
        """Take the numbers that change for values like others, which a recording is made for."""
        self._exchange.give_up(attempt)
        self._numbers.give_up(why)
        self._turn_to_key(why)


def _looked_at(attempts: Iterable[Attempt]) -> str:
    steps = (way.step for attempt in attempts for way in attempt.paths)
    where = next((step.place for step in steps if step is not None and step.place), "")
    return f"a number that Python looks at keeps changing{where}"


def _settings(array: torch.nn.Module) -> list[Any]:
    """List what decides on a step beside values and attributes of user's modules: which parameters are trained, modes
    of training, and plain attributes of layers, also those of models that run one by one."""
    found: list[Any] = [parameter.requires_grad for parameter in array.parameters()]
    for _, module in guards.modules_of(array):
        found.append(module.training)
        if isinstance(module, ArrayModule):
            users = vars(module).get("extra_attributes", ())
            found += [(n, v) for n, v in vars(module).items() if isinstance(v, PLAIN) and n not in users]
            found += [list(getattr(module, name, ())) for name in module.per_model_lists]
    return [*found, layers_set(array)]
