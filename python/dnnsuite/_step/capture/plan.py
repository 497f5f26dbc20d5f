# SPDX-License-Identifier: MIT
"""Recording of a step, the list of its operators, and plan of a replay: those that have to run in every step.

Facts of an operator's schema (`Operator`) decide whether it may be recorded at all, and whether a replay may leave it
out: what it writes, views and draws.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

# Results that depend on the shape of the arguments alone, or on no tensor.
_FILLED = {
    *("ones_like", "zeros_like", "full_like", "new_zeros", "new_ones", "new_full"),
    *("ones", "zeros", "full", "arange", "scalar_tensor", "eye", "linspace"),
}
#: Operators that write into arguments of which their schemas do not say so: the names of those.
_WRITES_UNSAID = {f"aten::{name}_batch_norm": ("running_mean", "running_var") for name in ("native", "cudnn", "miopen")}
#: Operators that write nothing, though their schemas say so: `record_stream` tells the allocator who reads a tensor.
_WRITES_NOTHING = {"aten::record_stream"}
_RATE_ARGUMENTS = ("dropout_p", "p", "train", "dropout")
_LOOK = "aten::_local_scalar_dense"


@dataclass(frozen=True)
class Operator:
    """Facts about one operator.

    Attributes:
        defaults: name and default value of each argument, in order.
        written: places of the arguments that it writes into.
        rates: places of the arguments that are 0 where it draws no random numbers.
        by_shape: True if its results depend on the shapes of the arguments alone, or on no tensor.
        only_acts: True if it returns nothing, so it is called for its effect.
        returns_list: True if it returns one list.
        looks: True if it returns a tensor's value to Python; `scalar` if as one number.
        sized_by_values: True if the shape of its result depends on values, or would with a mask among the arguments.
        reshapes: True if it changes its argument's shape in place; `view` is the operator that returns such a view.
        draws: True if it draws from torch's generator.
        types: the schema's type of each argument.
        keywords: True for each argument that is given by its name only.
    """

    name: str
    defaults: tuple[tuple[str, Any], ...]
    written: tuple[int, ...]
    rates: tuple[int, ...]
    by_shape: bool
    only_acts: bool
    returns_list: bool
    looks: bool
    scalar: bool
    sized_by_values: bool
    reshapes: bool
    view: Any
    draws: bool
    types: tuple[str, ...]
    keywords: tuple[bool, ...]

    def arguments(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        """List every argument in the schema's order, defaults filled in."""
        given = list(args)
        for name, default in self.defaults[len(given) :]:
            given.append(kwargs.get(name, default))
        return given


_known: dict[Any, Operator | None] = {}


def operator_of(func: Any) -> Operator | None:
    """Look an operator up; None for one without a schema."""
    found = _known.get(func)
    if found is None and func not in _known:
        found = _known[func] = _read(func)
    return found


def known_operator(func: Any) -> Operator:
    """Look up an operator that was recorded, which has a schema."""
    found = operator_of(func)
    assert found is not None
    return found


def _read(func: Any) -> Operator | None:
    schema = getattr(func, "_schema", None)
    if schema is None:
        return None
    tags, name, arguments = func.tags, schema.name.split("::")[1], schema.arguments
    aliases, types = [one.alias_info for one in arguments], tuple(str(one.type) for one in arguments)
    unsaid = _WRITES_UNSAID.get(schema.name, ())
    said = [place for place, alias in enumerate(aliases) if alias is not None and alias.is_write]
    if schema.name in _WRITES_NOTHING:
        said = []
    names, returns = [one.name for one in arguments], schema.returns
    return Operator(
        schema.name.replace("::", "."),
        tuple((one.name, one.default_value) for one in arguments),
        tuple(place for place, one in enumerate(names) if place in said or one in unsaid),
        tuple(place for place, one in enumerate(names) if one in _RATE_ARGUMENTS),
        by_shape=name in _FILLED,
        only_acts=not returns,
        returns_list=len(returns) == 1 and isinstance(returns[0].type, torch.ListType),
        looks=torch.Tag.data_dependent_output in tags or schema.name == _LOOK,
        scalar=schema.name == _LOOK,
        sized_by_values=torch.Tag.dynamic_output_shape in tags,
        reshapes=torch.Tag.inplace_view in tags,
        view=_view_of(func),
        draws=torch.Tag.nondeterministic_seeded in tags,
        types=types,
        keywords=tuple(one.kwarg_only for one in arguments),
    )


def _view_of(func: Any) -> Any:
    """Find the operator that returns as a view what `func`, such as `unsqueeze_`, does to its argument; None if there
    is none. The step uses the tensor in its new shape from then on, so the view serves as well."""
    if torch.Tag.inplace_view not in func.tags:
        return None
    twin = getattr(torch.ops.aten, func._schema.name.split("::")[1].rstrip("_"), None)
    wanted = [(one.name, str(one.type)) for one in func._schema.arguments]
    for overload in twin.overloads() if twin is not None else ():
        found = getattr(twin, overload)
        aliases = [one.alias_info for one in found._schema.returns]
        takes = [(one.name, str(one.type)) for one in found._schema.arguments]
        if takes == wanted and aliases and all(one is not None and not one.is_write for one in aliases):
            return found
    return None


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


def make_plan(recording: StepRecording) -> ReplayPlan:
    """Plan a replay of `recording`, without views of tensors that keep their address, constants, and operators whose
    result is not used (below autograd there are many)."""
    static = dict(recording.external)
    constant: set[int] = set()
    left, views = [], []
    for call in recording.calls:
        taken = slots_of(call.arguments)
        if call.writes:
            left.append(call)
        elif call.views and taken <= static.keys() and all(isinstance(one, int) for one in call.outputs):
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
    calls, _ = _leading_to(left, results, always=True)
    used = results.union(*(slots_of(call.arguments) for call in calls))
    views, roots = _leading_to(views, used)
    made = slots_in([call.outputs for call in views])
    begin = {slot: tensor for slot, tensor in static.items() if slot in roots - made}
    static = {slot: tensor for slot, tensor in static.items() if slot in used}
    external = begin.keys() & recording.external.keys()
    return ReplayPlan(
        calls, recording.inputs, static, recording.losses, begin, views, external, recording.numbers, recording.left
    )


def _leading_to(calls: list[OperatorCall], used: set[int], always: bool = False) -> tuple[list[OperatorCall], set[int]]:
    """Choose the calls that the slots `used` depend on, and with `always` those that write; return them and all slots
    that they need."""
    kept = []
    for call in reversed(calls):
        if used & slots_in(call.outputs) or (always and call.writes):
            used = used | slots_of(call.arguments)
            kept.append(call)
    return kept[::-1], used


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
        written = written_slots(known_operator(call.op), call.arguments) if call.writes else set()
        return {self.storage[slot] for slot in written}

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
