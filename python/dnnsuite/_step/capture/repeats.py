# SPDX-License-Identifier: MIT
"""Loops that run until a value which Python reads says stop, rolled up in a list of operators: one round stands for
all.

A step whose loop runs more or less often then has the same list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..._torch import assert_true
from .recording import OperatorCall, TensorSlot, slots_in


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
            now = _described(one, before)
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
        return replace(
            call, arguments=self._in(call.arguments), outputs=[self._of(one) for one in call.outputs]
        )

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


def _described(calls: Sequence[OperatorCall], before: Sequence[OperatorCall]) -> list[Any]:
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
