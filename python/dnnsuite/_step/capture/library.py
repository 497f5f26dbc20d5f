# SPDX-License-Identifier: MIT
"""Recordings of an array's steps, kept for reuse beyond the shard that made them: by other shards of the same width, by
the same models after an edit and, as a pattern, for other layouts of batch."""

from __future__ import annotations

import functools
import threading
import types
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch

from .plan import ReplayPlan
from .record import OperatorCall, TensorSlot
from .rolled import Rolled
from .script import Script, same_bits

Facts = tuple[Any, ...]
Plans = Sequence[tuple[str, list[int], list[int]] | None]
_MOST = 64  # recordings that are kept


class Subject(Protocol):
    """Shard whose step is recorded, as far as recordings of other shards are concerned."""

    def roles(self) -> dict[str, torch.Tensor]:
        """Collect by role the tensors that stay from step to step: parameters, buffers, the optimizer's state."""

    def facts(self, era: object) -> Facts:
        """List everything that its code can see except tensors' values. `era` replaces values that cannot be
        compared."""

    def plans(self) -> Plans:
        """Describe the optimizer's plans, for `prepare` of another shard."""

    def prepare(self, plans: Plans) -> None:
        """Make the optimizer's plans before the first step."""


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
    """Tensor whose value Python has read in a step: the step's input `given`, or a tensor that stays."""

    given: int | None
    tensor: torch.Tensor
    value: torch.Tensor
    place: Place | None = None
    version: int = -1

    @property
    def known(self) -> bool:
        """True if it can be found in another shard."""
        return self.given is not None or self.place is not None

    def placed(self, search: Places) -> Read:
        """Describe the place by role, without the shard's tensor."""
        place = None if self.given is not None else search.find(self.tensor)
        return replace(self, tensor=self.value, place=place, version=-1)

    def among(self, roles: Mapping[str, torch.Tensor]) -> Read:
        """Find the place in another shard."""
        return self if self.place is None else replace(self, tensor=self.place.of(roles), version=-1)

    def holds(self, inputs: Sequence[torch.Tensor]) -> bool:
        """Return True if Python would read the same value in a step with these inputs."""
        tensor = self.tensor if self.given is None else inputs[self.given]
        if tensor is self.tensor and tensor._version == self.version:
            return True
        if not same_bits(tensor.detach(), self.value):
            return False
        self.tensor, self.version = tensor, tensor._version  # held, so that no other tensor is taken for it
        return True


@dataclass
class Proven:
    """Recording that was found equal to its step as written, without the tensors of the shard that made it."""

    facts: Facts
    plans: Plans
    script: Script
    plan: ReplayPlan
    places: dict[int, Place]  # by slot
    others: dict[
        int, torch.Tensor
    ]  # by slot: tensors without a role, such as those that a loss function closes over
    reads: list[Read]
    owner: weakref.ref[Any]
    settled: bool = True  # `others` are known to be those of any shard

    @functools.cached_property
    def outline(self) -> list[Any]:
        """List of the operators without numbers, which recordings of one step for different layouts have in common."""
        return _outline(self)

    def serve(self, subject: Subject) -> tuple[Script, list[Read]] | None:
        """Make the replay for another shard, with the reads it depends on; None if it cannot serve that shard."""
        if not self.settled or not all(read.known for read in self.reads):
            return None
        subject.prepare(self.plans)
        roles = subject.roles()
        if not roles.keys() >= {place.role for place in self.places.values()}:
            return None  # what the first step makes is not there yet
        found = {slot: place.of(roles) for slot, place in self.places.items()}
        script = self.script.bound(self.plan, self.plan.on(self.others | found))
        return script, [read.among(roles) for read in self.reads]


def prove(facts: Facts, subject: Subject, script: Script, reads: Sequence[Read]) -> Proven:
    """Describe a script in terms of roles."""
    plan = script.plan
    search = Places(subject.roles())
    found = {slot: search.find(tensor) for slot, tensor in plan.roots.items()}
    places = {slot: place for slot, place in found.items() if place is not None}
    others = {slot: plan.roots[slot] for slot in plan.external if found[slot] is None}
    constants = {slot: tensor for slot, tensor in plan.roots.items() if slot not in plan.external}
    light = replace(plan, static=dict.fromkeys(plan.static, _NOTHING), roots=constants)
    looked = [read.placed(search) for read in reads]
    owner = weakref.ref(subject)
    bound = script.bound(light, [])
    return Proven(facts, subject.plans(), bound, light, places, others, looked, owner, settled=not others)


_NOTHING = torch.empty(0)


def _outline(made: Proven) -> list[Any]:
    """List the operators of a step and the flow of tensors through them, without numbers, which depend on the layout of
    batch. Loops over the models are rolled up, because the number of models may differ too."""
    rolled = Rolled([*made.plan.views, *made.plan.calls])
    names: dict[int, Any] = {slot: ("input", place) for place, slot in enumerate(made.plan.inputs)}
    names |= {slot: ("role", place.role, len(place.shape)) for slot, place in made.places.items()}
    names |= {slot: ("other", tensor.dtype, tensor.dim()) for slot, tensor in made.others.items()}
    names |= {slot: ("constant", tensor.dtype, tensor.dim()) for slot, tensor in made.plan.roots.items()}
    count = iter(range(1 << 62))

    def name(slot: int | None) -> Any:
        if slot is None:
            return None
        if slot not in names:
            names[slot] = next(count)
        return names[slot]

    def each(slots: list[Any]) -> Any:
        first = rolled.each(slots)
        return tuple(map(name, slots)) if first is None else ("each model's", name(first))

    def one(value: Any) -> Any:
        if isinstance(value, TensorSlot):
            return name(value.index)
        if isinstance(value, (list, tuple)):
            slots = [part.index for part in value if isinstance(part, TensorSlot)]
            return each(slots) if slots and len(slots) == len(value) else tuple(map(one, value))
        return type(value) if type(value) in (int, float) else value

    def line(call: OperatorCall) -> Any:
        taken = one(call.arguments)
        outputs = [each(o) if isinstance(o, list) else name(o) for o in call.outputs]
        return call.op, taken, outputs

    lines = [line(call) for call in rolled.calls]
    return [*lines, name(made.plan.losses)]


class Outlines:
    """Outlines of the steps proven in this process by any runner, latest last, each with its code. They hold no
    tensors: a step that uses tensors without a role is known to its own runner only.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: list[tuple[Any, list[Any]]] = []

    def keep(self, code: Any, outline: list[Any]) -> None:
        """Keep an outline of the step of `code`."""
        with self._lock:
            self._known = [*(one for one in self._known if one != (code, outline)), (code, outline)][-_MOST:]

    def has(self, code: Any, outline: list[Any]) -> bool:
        """Return True if a step of `code` with this outline was proven."""
        with self._lock:
            return (code, outline) in self._known


OUTLINES = Outlines()


class SharedRecordings:
    """Recordings of this process, by whatever runner, the latest last: equal code on tensors of equal layouts is the
    same step. Those with tensors that have no role are known to their own runner alone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: list[tuple[list[weakref.ref[Any]], Proven]] = []

    def keep(self, objects: Sequence[Any], made: Proven) -> None:
        """Keep a recording of code that sees these objects."""
        try:
            seen = [weakref.ref(one) for one in objects]
        except TypeError:  # nobody could say later whether it is the same one
            return
        with self._lock:
            others = [(o, one) for o, one in self._known if one.facts != made.facts]
            self._known = [*others, (seen, made)][-_MOST:]

    def find(self, objects: Sequence[Any], facts: Facts) -> Proven | None:
        """Find a recording of the same step."""
        with self._lock:
            for seen, made in reversed(self._known):
                if len(seen) == len(objects) and made.facts == facts:
                    return made if all(ref() is one for ref, one in zip(seen, objects, strict=True)) else None
        return None


SHARED = SharedRecordings()


def _is_own(value: Any, era: object) -> bool:
    """Return True for facts of one runner alone: with what cannot be compared, or with functions that hold values."""
    if isinstance(value, (tuple, list)):
        return any(_is_own(part, era) for part in value)
    return value is era or (isinstance(value, types.FunctionType) and value.__closure__ is not None)


def code_of(function: Any) -> Any:
    """Describe a loss function, or each of several, so that equal descriptions compute the same; the object itself if
    it has state."""
    if type(function) is tuple:
        return tuple(map(code_of, function))
    if isinstance(function, types.FunctionType) and not function.__closure__ and not vars(function):
        defaults = function.__defaults__, function.__kwdefaults__
        if not any(defaults):
            return function.__code__, id(function.__globals__)
    try:
        return weakref.ref(function)
    except TypeError:
        return object()


class Recordings:
    """Proven recordings, and the shards that are recording others: one shard records for all that are alike."""

    def __init__(self, function: Any = None, shared: bool = False) -> None:
        """`function` computes the losses, or each of several in turn. `shared`: facts tell all that a step depends on,
        for other runners, too."""
        self._lock, self._shared = threading.Lock(), shared
        self._code = code_of(function)
        self.era = object()
        self._proven: list[Proven] = []
        self._leaders: list[tuple[Facts, weakref.ref[Any]]] = []
        self._alone: list[Facts] = []  # of which the leader found no recording that serves others

    def edited(self) -> None:
        """Begin a new era: values that cannot be compared may have changed."""
        with self._lock:
            self.era = object()
            self._leaders, self._alone = [], []

    def find(self, facts: Facts) -> Proven | None:
        """Find a recording of the same step."""
        with self._lock:
            return next((one for one in self._proven if one.facts == facts), None)

    def adopt(self, facts: Facts, objects: Sequence[Any]) -> Proven | None:
        """Find a recording of the same step by another runner, whose code sees the same objects."""
        found = SHARED.find(objects, facts) if self._shared else None
        if found is not None:
            with self._lock:
                self._proven = [*self._proven, found][-_MOST:]
        return found

    def pattern(self, facts: Facts) -> Proven | None:
        """Find a recording of the same code on another layout of batch, or on more or fewer models."""
        with self._lock:
            return next((one for one in reversed(self._proven) if one.facts[0] == facts[0]), None)

    def lead(self, facts: Facts, who: Any) -> bool:
        """Return True if `who` shall record the step, False if another is at work on it."""
        with self._lock:
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
        with self._lock:
            self._leaders = [(f, r) for f, r in self._leaders if r() not in (None, who) or f != facts]
            if alone and facts not in self._alone:
                self._alone.append(facts)

    def keep(self, made: Proven, objects: Sequence[Any] = ()) -> None:
        """Keep a recording that was compared with its step as written; its code sees `objects`."""
        with self._lock:
            self._proven = [one for one in self._proven if one.facts != made.facts or not one.settled]
            self._proven = [*self._proven, made][-_MOST:]
        if not made.others:
            OUTLINES.keep((self._code, made.facts[0]), made.outline)
            if self._shared and not _is_own(made.facts, self.era):
                SHARED.keep(objects, made)

    def follows(self, made: Proven) -> bool:
        """Return True if `made` is a proven step on another layout of batch, on other models, by another shard, or by
        another runner."""
        with self._lock:
            for known in self._proven:
                if known.outline == made.outline and _agree(known, made):
                    made.settled = known.settled = known.settled or known.owner() is not made.owner()
                    return True
        return not made.others and OUTLINES.has((self._code, made.facts[0]), made.outline)


def _agree(known: Proven, made: Proven) -> bool:
    """Return True if the tensors without a role are the same in both, or constants of equal value."""
    pairs = zip(known.others.values(), made.others.values(), strict=True)  # the outlines have as many
    return all(a.data_ptr() == b.data_ptr() or same_bits(a, b) for a, b in pairs)
