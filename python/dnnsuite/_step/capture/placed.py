# SPDX-License-Identifier: MIT
"""Scripts and reads of a recording in terms of roles, so that they serve other shards and hold no tensors of one.

Loops over the models are rolled up, one model's operators for those of all, and so are loops that end by a value which
Python reads: steps of more or fewer models, or rounds, then have the same list of operators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ..._torch import assert_true
from .operators import known_operator
from .plan import OperatorCall, ReplayPlan, TensorSlot, slots_in, slots_of, written_slots
from .script import Script, same_bits

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

    @classmethod
    def of(cls, script: Script, search: Places) -> PlacedScript:
        """Describe a script; its own tensors are left out."""
        plan = script.plan
        found = {slot: search.find(tensor) for slot, tensor in plan.roots.items()}
        places = {slot: place for slot, place in found.items() if place is not None}
        others = {slot: plan.roots[slot] for slot in plan.external if found[slot] is None}
        constants = {slot: tensor for slot, tensor in plan.roots.items() if slot not in plan.external}
        light = replace(plan, static=dict.fromkeys(plan.static, _NOTHING), roots=constants)
        return cls(script.bound(light), light, places, others, frozenset(_written(plan, others)))

    def on(self, roles: Mapping[str, torch.Tensor]) -> Script:
        """Make the script for another shard."""
        found = {slot: place.of(roles) for slot, place in self.places.items()}
        return self.script.bound(self.plan, self.others | found)


Copy = tuple[int, int]  # how many there are, and which one


class _Mixed(Exception):
    """Signal that an operator takes tensors of different copies."""


class Rolled:
    """The operators that are left of a list, and the slots that stand for a tensor of each copy.

    A copy is all that is computed from one part of an `unbind` of dimension 0. A list is rolled up only if all copies
    are the same operators on the same other tensors; otherwise it stays as it is.
    """

    def __init__(self, calls: Sequence[OperatorCall]) -> None:
        self.calls = list(calls)
        self._copies: dict[int, Copy] = {}
        self._bodies: dict[Copy, list[Any]] = {}
        self._local: dict[Copy, dict[int, int]] = {}
        if not any(map(_parts_models, calls)):
            return
        try:
            places = [self._copy_of(call) for call in calls]
        except _Mixed:
            self._copies = {}
            return
        lengths = {n for n, _ in self._bodies}
        if all(self._bodies.get((n, j)) == self._bodies.get((n, 0)) for n in lengths for j in range(n)):
            kept = zip(calls, places, strict=True)
            self.calls = [call for call, place in kept if place is None or place[1] == 0]
        else:
            self._copies = {}

    def each(self, slots: Sequence[Any]) -> int | None:
        """Return the slot of the first of all copies, if `slots` are theirs in order; else None."""
        found = [self._copies.get(slot) for slot in slots]
        if len(slots) > 1 and found == [(len(slots), j) for j in range(len(slots))]:
            return int(slots[0])
        return None

    def _copy_of(self, call: OperatorCall) -> Copy | None:
        """Find the copy that an operator belongs to, and note its results as of it."""
        taken = set()
        for value in call.arguments:
            slots = _listed(value)
            if slots is None or self.each(slots) is None:
                taken |= {self._copies.get(slot) for slot in slots_of([value])}
        found = taken - {None}
        if len(found) > 1:
            raise _Mixed
        if not found:
            if _parts_models(call):
                parts = call.outputs[0]
                self._copies.update((slot, (len(parts), j)) for j, slot in enumerate(parts))
            return None
        (copy,) = found
        assert copy is not None
        self._note(call, copy)
        return copy

    def _note(self, call: OperatorCall, copy: Copy) -> None:
        local = self._local.setdefault(copy, {})
        taken = self._described(call.arguments, copy)
        made = [local.setdefault(slot, len(local)) for slot in _flat(call.outputs)]
        self._copies.update((slot, copy) for slot in slots_in(call.outputs))
        self._bodies.setdefault(copy, []).append((call.op, taken, made))

    def _described(self, value: Any, copy: Copy) -> Any:
        if isinstance(value, (list, tuple)):
            return tuple(self._described(one, copy) for one in value)
        if not isinstance(value, TensorSlot):
            return type(value) if type(value) in (int, float) else value
        if self._copies.get(value.index) != copy:
            return "shared", value.index
        local = self._local[copy]
        return "own", local.setdefault(value.index, len(local))


def _parts_models(call: OperatorCall) -> bool:
    """Return True for an `unbind` of the models."""
    return call.op is torch.ops.aten.unbind.int and call.arguments[1] == 0


def _flat(outputs: Sequence[Any]) -> list[int]:
    """List the slots of results in order."""
    parts = (one if isinstance(one, list) else [one] for one in outputs)
    return [slot for part in parts for slot in part if slot is not None]


def _listed(value: Any) -> list[int] | None:
    """Return the slots of a list of tensors; None for anything else."""
    if not isinstance(value, (list, tuple)) or not all(isinstance(one, TensorSlot) for one in value):
        return None
    return [one.index for one in value]


class Repeats:
    """Operators that are left of a list once rounds like the one before are taken out.

    A round ends with an assertion of what Python has read. It is like the one before if it computes the same of its own
    results, of those of the round before, and of tensors that are older than both.
    """

    def __init__(self, calls: Sequence[OperatorCall]) -> None:
        self._stands_for: dict[int, int] = {}
        self.calls: list[OperatorCall] = []
        rounds = _rounds(calls)
        if len(rounds) == 1:  # no loop ends by a value: all operators are left as they are
            self.calls = list(calls)
            return
        before: list[OperatorCall] = []
        described: list[Any] = []
        for one in rounds:
            now = _described_round(one, before)
            if now == described and one is not rounds[-1]:
                places = zip(_results(one), _results(before), strict=True)
                self._stands_for.update((slot, self.slot(other)) for slot, other in places)
            else:
                self.calls += [self._renamed(call) for call in one]
            before, described = one, now

    def slot(self, slot: int) -> int:
        """Return the slot that is left in the place of `slot`."""
        return self._stands_for.get(slot, slot)

    def _renamed(self, call: OperatorCall) -> OperatorCall:
        return replace(call, arguments=self._in(call.arguments), outputs=[self._of(one) for one in call.outputs])

    def _in(self, value: Any) -> Any:
        if type(value) is TensorSlot:
            return TensorSlot(self.slot(value.index))
        return type(value)(map(self._in, value)) if type(value) in (list, tuple) else value

    def _of(self, output: Any) -> Any:
        """Rename a result: an operator that writes returns the tensor that it is given."""
        if isinstance(output, list):
            return list(map(self._of, output))
        return None if output is None else self.slot(output)


def _rounds(calls: Sequence[OperatorCall]) -> list[list[OperatorCall]]:
    """Cut a list of operators after each assertion."""
    found: list[list[OperatorCall]] = [[]]
    for call in calls:
        found[-1].append(call)
        if call.op is assert_true:
            found.append([])
    return found


def _results(calls: Sequence[OperatorCall]) -> list[int]:
    """List the slots of the results, each once."""
    return list(dict.fromkeys(slot for call in calls for slot in sorted(slots_in(call.outputs))))


def _described_round(calls: Sequence[OperatorCall], before: Sequence[OperatorCall]) -> list[Any]:
    """Describe a round so that it equals the description of one that does the same a round later."""
    names: dict[int, Any] = {slot: ("before", place) for place, slot in enumerate(_results(before))}
    names |= {slot: ("own", place) for place, slot in enumerate(_results(calls))}

    def one(value: Any) -> Any:
        if type(value) is TensorSlot:
            return names.get(value.index, value.index)
        if isinstance(value, (list, tuple)):
            return tuple(map(one, value))
        return type(value) if type(value) in (int, float, str) else value

    return [(call.op, one(call.arguments), len(slots_in(call.outputs))) for call in calls]
