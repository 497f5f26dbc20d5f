# SPDX-License-Identifier: MIT
"""Recordings of an array's steps, kept for reuse beyond the shard that made them: by other shards of the same width, by
the same models after an edit and, as a pattern, for other layouts of batch.

They know the tensors that stay by role, so that they serve other shards and hold no tensors of one."""

from __future__ import annotations

import contextlib
import functools
import threading
import types
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from .looks import NO_LOOKS, Looks, without_number
from .numbers import FollowedStep
from .plan import ReplayPlan, StepRecording, TensorSlot, known_operator, slots_in, written_slots
from .script import Script, same_bits

if TYPE_CHECKING:  # it is made of what this folder has
    from ..shard import Shard

Facts = tuple[Any, ...]
Plans = Sequence[tuple[str, list[int], list[int]] | None]
_MOST = 64  # recordings that are kept
_NOTHING = torch.empty(0)


@dataclass(frozen=True)
class Place:
    """Place of a tensor in the one that has a `role`."""

    role: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype

    def of(self, roles: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Find the tensor at this place among those of another shard."""
        held = roles[self.role]
        if self.offset == 0 and held.shape == self.shape and held.stride() == self.stride:
            return held
        return held.detach().as_strided(self.shape, self.stride, held.storage_offset() + self.offset)


class Places:
    """Index from memory to the tensors with a role."""

    def __init__(self, roles: Mapping[str, torch.Tensor]) -> None:
        self._at: dict[int, list[tuple[str, torch.Tensor]]] = {}
        for role, tensor in roles.items():
            self._at.setdefault(tensor.untyped_storage()._cdata, []).append((role, tensor))

    def find(self, tensor: torch.Tensor) -> Place | None:
        """Find the place of a tensor; None if it is not wholly inside a tensor with a role."""
        for role, held in self._at.get(tensor.untyped_storage()._cdata, ()):
            offset = int(tensor.storage_offset() - held.storage_offset())
            if tensor.dtype == held.dtype and offset >= 0 and offset + _reach(tensor) <= _reach(held):
                return Place(role, tuple(tensor.shape), tensor.stride(), offset, tensor.dtype)
        return None


def _reach(tensor: torch.Tensor) -> int:
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


@dataclass
class Read:
    """Tensor whose value decides on a step, in the line `where`: the step's input `given`, or a tensor that stays."""

    given: int | None
    tensor: torch.Tensor
    value: torch.Tensor
    place: Place | None = None
    version: int = -1
    where: str = ""

    @property
    def known(self) -> bool:
        """True if it can be found in another shard."""
        return self.given is not None or self.place is not None

    def placed(self, search: Places) -> Read:
        """Describe it by role, without the shard's tensor."""
        place = None if self.given is not None else search.find(self.tensor)
        return replace(self, tensor=self.value, place=place, version=-1)

    def among(self, roles: Mapping[str, torch.Tensor]) -> Read:
        """Find it in another shard."""
        return self if self.place is None else replace(self, tensor=self.place.of(roles), version=-1)

    def holds(self, inputs: Sequence[torch.Tensor]) -> bool:
        """Return True if it has the same value in a step with these inputs."""
        tensor = self.tensor if self.given is None else inputs[self.given]
        # A version tells of writes to what a step brings. What stays has views that count for themselves.
        if self.given is not None and tensor is self.tensor and tensor._version == self.version:
            return True
        if not same_bits(tensor.detach(), self.value):
            return False
        self.tensor, self.version = tensor, tensor._version  # held, so that no other tensor is taken for it
        return True


def _written(plan: ReplayPlan, tensors: Mapping[int, torch.Tensor]) -> Iterator[int]:
    """Yield the slots of those `tensors` whose memory a plan writes into."""
    if not tensors:
        return
    calls = [call for call in plan.calls if call.writes]
    slots = {slot for call in calls for slot in written_slots(known_operator(call.op), call.arguments)}
    memory = {t.untyped_storage()._cdata for slot, t in (plan.roots | plan.static).items() if slot in slots}
    yield from (slot for slot, tensor in tensors.items() if tensor.untyped_storage()._cdata in memory)


@dataclass
class PlacedScript:
    """Script in terms of roles."""

    script: Script
    plan: ReplayPlan
    places: dict[int, Place]  # by slot
    others: dict[int, torch.Tensor]  # by slot: tensors without a role, such as those that a loss function closes over
    written: frozenset[int]  # slots of those of `others` that the script writes into
    changed: Sequence[Place] | None  # what a step with assertions inside changes before the last of them

    @classmethod
    def of(cls, script: Script, search: Places) -> PlacedScript | None:
        """Describe a script, whose own tensors are left out; None if it changes one without a role on the way."""
        plan, changed = script.plan, None
        if script.changed is not None:
            changed = [place for tensor in script.changed if (place := search.find(tensor)) is not None]
            if len(changed) < len(script.changed):
                return None
        found = {slot: search.find(tensor) for slot, tensor in plan.roots.items()}
        places = {slot: place for slot, place in found.items() if place is not None}
        others = {slot: plan.roots[slot] for slot in plan.external if found[slot] is None}
        constants = {slot: tensor for slot, tensor in plan.roots.items() if slot not in plan.external}
        light = replace(plan, static=dict.fromkeys(plan.static, _NOTHING), roots=constants)
        return cls(script.bound(light), light, places, others, frozenset(_written(plan, others)), changed)

    def on(self, roles: Mapping[str, torch.Tensor]) -> Script:
        """Make the script for another shard."""
        found = {slot: place.of(roles) for slot, place in self.places.items()}
        changed = None if self.changed is None else [place.of(roles).detach() for place in self.changed]
        return self.script.bound(self.plan, self.others | found, changed)


@dataclass
class Proven:
    """Recording that was found equal to its step as written, without the tensors of the shard that made it."""

    facts: Facts
    plans: Plans
    step: PlacedScript
    reads: list[Read]
    models: tuple[int, int] | None  # first and last of the shard that made it, until the array is edited
    numbers: FollowedStep | None = None  # arithmetic of a step that takes numbers
    looks: Looks = NO_LOOKS  # values that Python has read
    notes: Sequence[Any] = ()  # what the code has told about itself
    layers: Sequence[Any] = ()  # what the code had set in layers
    settled: bool = True  # tensors without a role are known to be those of any shard

    @property
    def others(self) -> list[torch.Tensor]:
        """List the tensors without a role."""
        return list(self.step.others.values())

    @property
    def key(self) -> tuple[Facts, Any]:
        """Facts, and values that Python has read of the batch: equal for recordings of which one is enough.

        Numbers lead one way or another; there is a recording for each.
        """
        return self.facts, self.looks.values if self.numbers is None else self.numbers.arithmetic

    @functools.cached_property
    def outline(self) -> frozenset[Any]:
        """Operators of the step, which recordings for different layouts have in common."""
        return _outline(self.step)

    def serve(self, subject: Shard) -> tuple[Script, list[Read]] | None:
        """Make the replay for another shard, with the reads it depends on; None if it cannot serve that shard."""
        if not self.settled or not all(read.known for read in self.reads) or self.layers != subject.layers_set():
            return None
        subject.prepare(self.plans)
        subject.take_notes(self.notes)
        roles = subject.roles()
        if not roles.keys() >= {place.role for place in (*self.step.places.values(), *(self.step.changed or ()))}:
            return None  # what the first step makes is not there yet
        return self.step.on(roles), [read.among(roles) for read in self.reads]


def prove(
    facts: Facts,
    subject: Shard,
    replay: Any,
    reads: Sequence[Read],
    looks: Looks = NO_LOOKS,
    numbers: FollowedStep | None = None,
) -> Proven | None:
    """Describe a replay in terms of roles; None if that cannot be done."""
    search = Places(subject.roles())
    step = PlacedScript.of(replay, search) if isinstance(replay, Script) else None
    if step is None:
        return None
    made = Proven(
        facts,
        subject.plans(),
        step,
        [read.placed(search) for read in reads],
        (subject.start, subject.start + subject.length),
        None if numbers is None else replace(numbers, recording=StepRecording()),  # which would hold tensors
        looks,
        subject.notes(),
        subject.layers_set(),
    )
    made.settled = not made.others
    return made


def _outline(made: PlacedScript) -> frozenset[Any]:
    """Describe the operators of a step, each once: what it is, and where each of its tensors comes from, which may be
    the result of another operator. Numbers depend on the layout of batch, and are left out, as is how often an operator
    is called: it depends on the number of models, and on the rounds of a loop that ends by what Python reads."""
    plan = made.plan
    names: dict[int, Any] = {slot: ("input", place) for place, slot in enumerate(plan.inputs)}
    names |= {slot: ("role", place.role, len(place.shape)) for slot, place in made.places.items()}
    names |= {slot: ("other", tensor.dtype, tensor.dim()) for slot, tensor in made.others.items()}
    names |= {slot: ("constant", tensor.dtype, tensor.dim()) for slot, tensor in plan.roots.items()}

    def described(value: Any) -> Any:
        if type(value) is TensorSlot:
            return names.get(value.index)
        if isinstance(value, (list, tuple)):
            parts = tuple(map(described, value))
            return tuple(dict.fromkeys(parts)) if all(type(one) is TensorSlot for one in value) else parts
        return type(value) if type(value) in (int, float) else without_number(value)

    lines = set[Any]()
    for call in (*plan.views, *plan.calls):
        lines.add((call.op, described(call.arguments)))
        for place, output in enumerate(call.outputs):
            for slot in slots_in([output]):
                names.setdefault(slot, (call.op, place))
    return frozenset((*lines, ("losses", names[plan.losses])))


_lock = threading.RLock()
#: Recordings of this process, by whatever runner, the latest last, with the objects that their code sees: equal code on
#: tensors of equal layouts is the same step. Those with tensors that have no role are known to their own runner alone.
SHARED: list[tuple[list[weakref.ref[Any]], Proven]] = []


def _is_own(value: Any, era: object) -> bool:
    """Return True for facts of one runner alone: with what cannot be compared, or with functions that hold values."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, (tuple, list)):
            waiting += one
        elif one is era or (isinstance(one, types.FunctionType) and one.__closure__ is not None):
            return True
    return False


class Recordings:
    """Proven recordings, and the shards that are recording others: one shard records for all that are alike."""

    def __init__(self, shared: bool = False) -> None:
        """`shared`: facts tell all that a step depends on, for other runners, too."""
        self._shared, self.era = shared, object()
        self._proven: list[Proven] = []
        self._leaders: list[tuple[Facts, weakref.ref[Any]]] = []
        self._alone: list[Facts] = []  # of which the leader found no recording that serves others
        self.numbers: tuple[Any, Sequence[Any]] = None, ()  # places of those that change, in steps of what code

    def discard(self) -> None:
        """Forget all recordings, also those for later runners: one of them is stale, or may be."""
        with _lock:
            SHARED.clear()
            self._proven = []

    def edited(self) -> None:
        """Begin a new era: values that cannot be compared may have changed."""
        with _lock:
            self.era = object()
            self._leaders, self._alone = [], []
            for one in self._proven:
                one.models = None

    @property
    def depend_on_values(self) -> bool:
        """True if Python reads a tensor that stays, such as a flag in a buffer, in a step that is recorded."""
        with _lock:
            return any(read.given is None for one in self._proven for read in one.reads)

    def find(self, facts: Facts) -> list[Proven]:
        """Find the recordings of the same step, one for each way through it."""
        with _lock:
            return [one for one in self._proven if one.facts == facts]

    def adopt(self, facts: Facts, objects: Sequence[Any]) -> list[Proven]:
        """Find recordings of the same step by another runner, whose code sees the same objects."""
        with _lock:
            each = [one for one in SHARED if self._shared and one[1].facts == facts and len(one[0]) == len(objects)]
            found = [made for seen, made in each if all(ref() is one for ref, one in zip(seen, objects, strict=True))]
            self._proven = [*self._proven, *found][-_MOST:]
        return found

    def pattern(self, facts: Facts) -> Proven | None:
        """Find a recording of the same code on another layout of batch, or on more or fewer models."""
        with _lock:
            return next((one for one in reversed(self._proven) if one.facts[0] == facts[0]), None)

    def lead(self, facts: Facts, who: Any) -> bool:
        """Return True if `who` shall record the step, False if another is at work on it."""
        with _lock:
            if facts in self._alone:
                return True
            for known, leader in self._leaders:
                if known == facts and leader() is not None:
                    return leader() is who
            self._leaders = [(f, r) for f, r in self._leaders if r() is not None]
            self._leaders.append((facts, weakref.ref(who)))
            return True

    def give_up(self, facts: Facts, who: Any, alone: bool) -> None:
        """Give up a recording so that other shards can try; with `alone` each for itself, because the recording of
        `who` cannot serve them."""
        with _lock:
            self._leaders = [(f, r) for f, r in self._leaders if r() not in (None, who) or f != facts]
            if alone and facts not in self._alone:
                self._alone.append(facts)

    def keep(self, made: Proven, objects: Sequence[Any] = (), facts: Facts = ()) -> None:
        """Keep a recording that was compared with its step as written; its code sees `objects`. Shards of this runner
        have made the first step too; `facts` are those after it, for others, whose code has not run."""
        with _lock:
            self._proven = [one for one in self._proven if one.key != made.key or not one.settled]
            self._proven = [*self._proven, made][-_MOST:]
            if not self._shared or made.others or made.numbers is not None or _is_own(made.facts, self.era):
                return
            with contextlib.suppress(TypeError):  # nobody could say later whether an object is the same one
                others = [(seen, one) for seen, one in SHARED if one.key != made.key]
                made = made if facts in ((), made.facts) else replace(made, facts=facts)
                SHARED[:] = [*others, ([weakref.ref(one) for one in objects], made)][-_MOST:]

    def follows(self, made: Proven) -> bool:
        """Return True if `made` is a proven step on another layout of batch, on other models, or by another shard."""
        with _lock:
            for known in self._proven:
                if known.outline == made.outline and _agree(known, made):
                    one, other = known.models, made.models
                    if one is not None and other is not None:  # two shards that have no model in common tell it
                        known.settled = known.settled or one[1] <= other[0] or other[1] <= one[0]
                    made.settled = known.settled
                    return True
        return False


def _agree(known: Proven, made: Proven) -> bool:
    """Return True if the tensors without a role are the same in both, or constants of equal value."""
    written = [slot in made.step.written for slot in made.step.others]
    each = zip(known.others, made.others, written, strict=False)
    same = (a.data_ptr() == b.data_ptr() or (not changes and same_bits(a, b)) for a, b, changes in each)
    return len(known.others) == len(made.others) and all(same)
