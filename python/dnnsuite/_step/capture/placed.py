# SPDX-License-Identifier: MIT
"""Scripts and reads of a recording in terms of roles, so that they serve other shards and hold no tensors of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from .operators import known_operator
from .plan import ReplayPlan
from .recording import written_slots
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
        """Describe it by role, without the shard's tensor."""
        place = None if self.given is not None else search.find(self.tensor)
        return replace(self, tensor=self.value, place=place, version=-1)

    def among(self, roles: Mapping[str, torch.Tensor]) -> Read:
        """Find it in another shard."""
        return self if self.place is None else replace(self, tensor=self.place.of(roles), version=-1)

    def holds(self, inputs: Sequence[torch.Tensor]) -> bool:
        """Return True if Python would read the same value in a step with these inputs."""
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
    others: dict[
        int, torch.Tensor
    ]  # by slot: tensors without a role, such as those that a loss function closes over
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
        return cls(script.bound(light, []), light, places, others, frozenset(_written(plan, others)))

    def on(self, roles: Mapping[str, torch.Tensor]) -> Script:
        """Make the script for another shard."""
        found = {slot: place.of(roles) for slot, place in self.places.items()}
        return self.script.bound(self.plan, self.plan.on(self.others | found))
