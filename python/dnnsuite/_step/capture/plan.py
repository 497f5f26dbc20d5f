# SPDX-License-Identifier: MIT
"""Recording of a step, the list of its operators, and plan of a replay: those that have to run in every step."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .operators import Operator, known_operator


@dataclass
class ReplayPlan:
    """Operators of a step, and the tensors that are there before every step."""

    calls: list[OperatorCall]
    inputs: list[int]
    static: dict[int, torch.Tensor]  # by slot: parameters, buffers, states, views of them, constants
    losses: int
    roots: dict[int, torch.Tensor] = field(default_factory=dict)  # by slot: all that `views` and `static` start from
    views: list[OperatorCall] = field(default_factory=list)  # those that made the views in `static`
    external: set[int] = field(default_factory=set)  # those of `roots` that are no constants
    numbers: dict[int, type] = field(default_factory=dict)  # those of `inputs` that are Python's numbers
    left: dict[tuple[int, str], int] = field(default_factory=dict)  # slots of what it leaves in modules, by place

    def on(self, found: Mapping[int, torch.Tensor]) -> list[torch.Tensor]:
        """List the tensors of `static` for a step that begins with the tensors `found`, by slot."""
        values = {**self.roots, **found}
        for call in self.views:
            values.update(zip(call.outputs, _run(call, values), strict=True))
        return [values[slot] for slot in self.static]


def make_plan(recording: StepRecording, asserted: Collection[int] = ()) -> ReplayPlan:
    """Plan a replay of `recording`, without views of tensors that keep their address, constants, and operators whose
    result is not used (below autograd there are many).

    Args:
        asserted: places of assertions that are checked before the step.
    """
    static = dict(recording.external)
    constant: set[int] = set()
    left, views = [], []
    for place, call in enumerate(recording.calls):
        if place in asserted:
            continue
        taken = slots_of(call.arguments)
        if call.writes:
            left.append(call)
        elif call.views and taken <= static.keys() and not _has_lists(call):
            for slot, result in zip(call.outputs, _run(call, static), strict=True):
                static[slot] = result
            views.append(call)
            constant |= slots_in(call.outputs) if taken <= constant else set()
        elif call.results is not None and _stays(call, recording, constant):
            for slot, result in zip(call.outputs, call.results, strict=True):
                static[slot] = result
            constant |= slots_in(call.outputs)
        else:
            left.append(call)
    results = {recording.losses, *recording.left.values()}
    calls = _needed(left, results)
    used = results.union(*(slots_of(call.arguments) for call in calls))
    views, roots = _leading_to(views, used)
    made = slots_in([call.outputs for call in views])
    begin = {slot: tensor for slot, tensor in static.items() if slot in roots - made}
    static = {slot: tensor for slot, tensor in static.items() if slot in used}
    external = begin.keys() & recording.external.keys()
    return ReplayPlan(
        calls, recording.inputs, static, recording.losses, begin, views, external, recording.numbers, recording.left
    )


def _leading_to(views: list[OperatorCall], used: set[int]) -> tuple[list[OperatorCall], set[int]]:
    """Choose the calls that the slots `used` depend on; return them and all slots that they need."""
    kept = []
    for call in reversed(views):
        if used & slots_in(call.outputs):
            used = used | slots_of(call.arguments)
            kept.append(call)
    return kept[::-1], used


def _has_lists(call: OperatorCall) -> bool:
    return any(not isinstance(output, int) for output in call.outputs)


def _stays(call: OperatorCall, recording: StepRecording, constant: set[int]) -> bool:
    """Return True if the results are never written, and follow from constants or from shapes alone."""
    if any(recording.storage[slot] in recording.written for slot in slots_in(call.outputs)):
        return False
    taken = slots_of(call.arguments)
    return taken <= constant or call.by_shape


@torch.no_grad()
def _run(call: OperatorCall, values: dict[int, torch.Tensor]) -> list[torch.Tensor]:
    operator = known_operator(call.op)
    positional, named = [], {}
    for place, argument in enumerate(call.arguments):
        value = _filled_in(argument, values)
        if operator.keywords[place]:
            named[operator.defaults[place][0]] = value
        else:
            positional.append(value)
    result: Any = call.op(*positional, **named)
    return list(result) if isinstance(result, (tuple, list)) else [result]


def _filled_in(value: Any, values: dict[int, torch.Tensor]) -> Any:
    """Put tensors in the place of slots."""
    if type(value) is TensorSlot:
        return values[value.index]
    if type(value) in (list, tuple):
        return type(value)(_filled_in(one, values) for one in value)
    return value


def _needed(calls: list[OperatorCall], results: set[int]) -> list[OperatorCall]:
    """Drop calls that neither write nor feed the results or a tensor that is written."""
    needed = set(results)
    kept = []
    for call in reversed(calls):
        if call.writes or needed & slots_in(call.outputs):
            needed |= slots_of(call.arguments)
            kept.append(call)
    return kept[::-1]


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
    inputs: list[int] = field(default_factory=list)  # slots of what each step brings: batch and hyper-parameters
    external: dict[int, torch.Tensor] = field(default_factory=dict)  # what was there before the step
    storage: dict[int, int] = field(default_factory=dict)  # slot → the storage it lies in
    written: set[int] = field(default_factory=set)  # storages that an operator writes into
    read: dict[int, str] = field(default_factory=dict)  # slots whose values decide on the step, and where they do
    looks: list[int] = field(default_factory=list)  # places of the assertions of what Python has read
    values: list[tuple[str, Any]] = field(default_factory=list)  # of what holds, as operators gave them to Python
    in_loops: set[int] = field(default_factory=set)  # those of them that are in a loop of the user's code
    numbers: dict[int, type] = field(default_factory=dict)  # slots of inputs that are Python's numbers
    losses: int = -1
    left: dict[tuple[int, str], int] = field(default_factory=dict)  # slots of what it leaves in modules, by place
    refusal: str | None = None  # why this step cannot be replayed
    partial: bool = False  # it ended where a part of the models' code began anew in another way
    parted: bool = False  # or where models of one shard are found to go different ways

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
