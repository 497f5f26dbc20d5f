# SPDX-License-Identifier: MIT
"""List of the operators of a step, as `record.py` makes it and a replay runs it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .operators import Operator, known_operator

MARK = "Python has read another value"  # in the message of an assertion that fails


@dataclass(frozen=True)
class TensorSlot:
    """Number of a tensor of the step."""

    index: int


@dataclass
class OperatorCall:
    """One operator with all its arguments in the order of its schema, tensors as slots.

    `outputs` has one entry per result, a list for a list of tensors, None for a result that is no tensor.
    """

    op: Any
    arguments: tuple[Any, ...]
    outputs: list[Any]
    writes: bool
    views: bool  # every result shares the storage of an argument
    results: list[torch.Tensor] | None = None  # kept where they may be constants
    place: str = ""  # line of the user's code

    @property
    def by_shape(self) -> bool:
        """True if the results depend on the shapes of the arguments alone, or on no tensor."""
        return known_operator(self.op).by_shape

    @property
    def name(self) -> str:
        namespace, name = self.op._schema.name.split("::")
        overload = self.op._schema.overload_name
        return f"{namespace}.{name}" + (f".{overload}" if overload else "")


@dataclass
class StepRecording:
    """List of a step's operators, and where their tensors come from."""

    calls: list[OperatorCall] = field(default_factory=list)
    inputs: list[int] = field(
        default_factory=list
    )  # slots of what each step brings: batch and hyper-parameters
    external: dict[int, torch.Tensor] = field(default_factory=dict)  # what was there before the step
    storage: dict[int, int] = field(default_factory=dict)  # slot → the storage it lies in
    written: set[int] = field(default_factory=set)  # storages that an operator writes into
    read: set[int] = field(default_factory=set)  # slots whose values decided what Python did
    looks: list[int] = field(default_factory=list)  # places of the assertions of what Python has read
    in_loops: set[int] = field(default_factory=set)  # those of them that are in a loop of the user's code
    numbers: dict[int, type] = field(default_factory=dict)  # slots of inputs that are Python's numbers
    losses: int = -1
    left: dict[tuple[int, str], int] = field(
        default_factory=dict
    )  # slots of what it leaves in modules, by place
    refusal: str | None = None  # why this step cannot be replayed

    def refuse(self, why: str) -> None:
        self.refusal = self.refusal or why

    def written_by(self, call: OperatorCall) -> set[int]:
        """Collect the storages that an operator writes into."""
        return (
            {self.storage[slot] for slot in written_slots(known_operator(call.op), call.arguments)}
            if call.writes
            else set()
        )

    def writer_of(self, slots: Iterable[int]) -> str:
        """Name the line of user's code that first writes into one of these tensors; empty if it is none."""
        storages = {self.storage[slot] for slot in slots}
        return next((call.place for call in self.calls if storages & self.written_by(call)), "")

    def writes_to(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage()._cdata in self.written

    def written_externals(self) -> list[torch.Tensor]:
        """List the tensors that the step changes and the next one sees."""
        return [t for slot, t in self.external.items() if self.storage[slot] in self.written]


def written_slots(operator: Operator, arguments: Sequence[Any]) -> set[int]:
    """Collect the numbers of the slots that an operator writes into."""
    return slots_of([arguments[place] for place in operator.written]) - {-1}


def slots_in(outputs: Iterable[Any]) -> set[int]:
    """Collect the numbers of the slots among a call's outputs."""
    found: set[int] = set()
    for output in outputs:
        if isinstance(output, (list, tuple)):
            found |= slots_in(output)
        elif output is not None:
            found.add(output)
    return found


def slots_of(arguments: Iterable[Any]) -> set[int]:
    """Collect the numbers of the slots that an operator takes."""
    found: set[int] = set()
    for value in arguments:
        if type(value) is TensorSlot:
            found.add(value.index)
        elif isinstance(value, (list, tuple)):
            found |= slots_of(value)
    return found
