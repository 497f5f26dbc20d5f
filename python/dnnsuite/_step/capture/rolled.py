# SPDX-License-Identifier: MIT
"""Loops over an array's models in a list of operators, rolled up: one model's operators stand for those of all.

Two steps of the same code on more or fewer models then have the same list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .recording import OperatorCall, TensorSlot, slots_in, slots_of

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
