# SPDX-License-Identifier: MIT
"""Run a list of operators from C++, without Python's interpreter lock, by torch's TorchScript interpreter.

It accepts every operator (torch's stable C++ interface none with a Scalar argument), looks each up once, frees a tensor
after its last use, and takes a third of the time of calls from Python. Its optimizer is off: operators run in recorded
order.
"""

from __future__ import annotations

import contextlib
import copy
import operator
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ... import _memory as memory
from ..._torch import below_autograd, create_function, get_graph_optimize, no_script, parse_ir, set_graph_optimize
from ...ops import as_real
from .guards import leave_in
from .looks import CheckedReplay, Replay, changed_before_looks, guard_of
from .operators import known_operator
from .plan import OperatorCall, ReplayPlan, StepRecording, TensorSlot, make_plan, slots_in, slots_of, written_slots

_MEMORY_FORMATS = {
    torch.contiguous_format: 0,
    torch.preserve_format: 1,
    torch.channels_last: 2,
    torch.channels_last_3d: 3,
}
_KEEPS_DTYPE = frozenset(
    f"aten::{name}" for name in ("masked_fill", "full_like", "fill", "scatter", "index_fill", "new_full")
)
_MOST = 256  # functions that are kept
_KINDS = {bool: "bool", int: "int", float: "float", complex: "complex", str: "str", type(None): "NoneType"}
_KINDS |= {torch.dtype: "int", torch.layout: "int", torch.memory_format: "int", torch.device: "Device"}


class NotScriptable(Exception):
    """Signal that the interpreter has no form for an operator or an argument; the message names it."""


class Functions:
    """Functions compiled in this process, latest last; equal steps of all shards and runners share one.

    They hold no tensors.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[Any, Callable[..., Any]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def of(self, writer: _Writer) -> Callable[..., Any]:
        """Find the function for a plan, or compile it."""
        text = writer.text()
        key = text, repr(writer.constants)
        with self._lock:
            found = self._known.pop(key, None)
            found = self._known[key] = found or _compile(text, writer.constants, writer.plan.calls)
            if len(self._known) > _MOST:
                del self._known[next(iter(self._known))]
        return found


FUNCTIONS = Functions()


class Scripts:
    """Maker of scripts of steps."""

    seeded = False  # torch's generator may not be drawn from: which numbers a model gets would depend on the others
    home: torch.device | None = None  # where all tensors of a step have to be; None where it is all one
    runs_code = False  # nothing of a step's own code runs while its replay is made
    warms_up = False  # the first step may be recorded

    def steps(self, train: Any, array: torch.nn.Module) -> Any:
        """Return the steps of `array` as they are recorded."""
        return train

    def recording(self) -> contextlib.AbstractContextManager[Any]:
        """Return a block for steps on the way to a script."""
        return contextlib.nullcontext()

    def fixed(self, batch: Any, hyper: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
        """Return the inputs of the recorded step: a script takes each step's tensors as they are. Others in it may have
        sizes that no step before had."""
        memory.expect_other_sizes()
        return batch, hyper

    def prepare(
        self, train: Any, recording: StepRecording, batch: Any, hyper: Sequence[Any], inputs: list[torch.Tensor]
    ) -> Replay:
        if no_script is not None:
            raise NotScriptable(no_script)
        try:
            return self._replay(recording)
        except NotScriptable:
            raise
        except Exception as error:  # its graphs are private to torch, and no two versions need to agree on them
            raise NotScriptable(f"torch's interpreter refuses the step: {described(error)}") from error

    def _replay(self, recording: StepRecording) -> Replay:
        guard, asserted = guard_of(recording)
        replay: Replay = Script(make_plan(recording, asserted))
        changed = changed_before_looks(recording, asserted)
        if changed is not None:
            replay = CheckedReplay(replay, changed)
        if guard is not None:
            replay.guard = Script(make_plan(guard))
        return replay

    def home_of_copies(self, tensors: Sequence[torch.Tensor], audits: bool = False) -> torch.device | None:
        """Return the device for copies of a state's tensors: their own."""
        return None

    def release(self) -> None:
        """Do nothing: a script holds no memory between steps."""

    def repeat(self, state: Any) -> SameBits:
        """Return a judge of a replay from `state` against the step as written."""
        return SameBits()


class SameBits:
    """Comparison of a replay with the step as written: nothing may differ."""

    def same_draws(self) -> None:
        """Do nothing: a script draws no random numbers of torch's generator."""

    def agrees(
        self, replayed: Sequence[torch.Tensor], written: Sequence[torch.Tensor], step: Callable[[], torch.Tensor]
    ) -> bool:
        """Return True if all results are the same, bit by bit; `step` is not run."""
        return not any(map(self.differ, replayed, written))

    def differ(self, replayed: torch.Tensor, written: torch.Tensor) -> bool:
        """Return True if one result is another one."""
        return not same_bits(replayed, written.detach())


class Script:
    """A plan, ready to run: `script(inputs)` runs the step on the step's own tensors and returns the losses."""

    guard: Replay | None = None
    _leave: Callable[[Any], None] | None = None

    def __init__(self, plan: ReplayPlan, functions: Functions | None = None) -> None:
        self._run = (FUNCTIONS if functions is None else functions).of(_Writer(plan))
        self.plan = plan
        order = [plan.inputs.index(slot) for slot in dict.fromkeys(plan.inputs)]
        self._taken = operator.itemgetter(*order) if len(order) > 1 else lambda inputs: [inputs[i] for i in order]
        self._static = list(plan.static.values())
        self._watch(plan.roots)

    def _watch(self, begin: Mapping[int, torch.Tensor]) -> None:
        """Note where the memory of those tensors is that views were made of: `.data = ...` gives them another."""
        viewed = {slot for call in self.plan.views for slot in slots_of(call.arguments)} & self.plan.external
        self._begin = {slot: begin[slot] for slot in viewed if slot in begin}
        self._addresses = list(map(torch.Tensor.data_ptr, self._begin.values()))

    def written(self) -> list[torch.Tensor]:
        """List the tensors from before a step, or views of them, that the step writes into."""
        source = {slot: slot for slot in self.plan.static}
        found: set[int] = set()
        for call in self.plan.calls:
            known = known_operator(call.op)
            written = written_slots(known, call.arguments) if call.writes else ()
            if call.views:  # of what is written, where something is: `copy_` returns a view of its first tensor
                origins = [source[s] for s in written or slots_of(call.arguments) if s in source]
                source |= {slot: origins[0] for slot in slots_in(call.outputs) if origins}
            found |= {source[s] for s in written if s in source}
        return [tensor for slot, tensor in zip(self.plan.static, self._static, strict=True) if slot in found]

    def bound(self, plan: ReplayPlan, begin: Mapping[int, torch.Tensor] | None = None) -> Script:
        """Make this script for a step that begins with other tensors, by slot, without a guard; `plan` equals its own
        plan except for `static`."""
        other = copy.copy(self)
        other.plan, other.guard, other._leave = plan, None, None
        other._static = [] if begin is None else plan.on(begin)
        other._watch(begin or {})
        return other

    def leaves_in(self, array: torch.nn.Module) -> bool:
        """Leave what the step leaves in attributes in those of `array` from now on; return True if there is any."""
        self._leave = leave_in(array) if self.plan.left else None
        return bool(self.plan.left)

    def __call__(self, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        if self._begin and list(map(torch.Tensor.data_ptr, self._begin.values())) != self._addresses:
            self._static = self.plan.on(self._begin)
            self._watch(self._begin)
        before = get_graph_optimize()  # of this thread
        try:
            set_graph_optimize(False)
            with below_autograd():
                results = self._run(*self._taken(inputs), *self._static)
            if self._leave is not None:
                self._leave(zip(self.plan.left, results[1:], strict=False))
            losses: torch.Tensor = results[0]
            return losses
        except RuntimeError as error:
            raise RuntimeError(_explained(str(error))) from None
        finally:
            set_graph_optimize(before)


class _Writer:
    """Text of a graph. Constants are inputs of the text and get their values later, so that no value is printed and
    parsed."""

    def __init__(self, plan: ReplayPlan) -> None:
        self.plan = plan
        self.constants: list[Any] = []
        self._kinds: list[str] = []
        self._known: dict[str, str] = {}
        self._lines: list[str] = []
        self._looked_at: list[str] = []
        self._names = 0
        self._defined = set(plan.inputs) | set(plan.static)

    def text(self) -> str:
        slots = dict.fromkeys([*self.plan.inputs, *self.plan.static])
        heads = [f"%t{slot} : {_kind_of(slot, self.plan)}" for slot in slots]
        for call in self.plan.calls:
            self._call(call)
        heads += [f"%c{i} : {kind}" for i, kind in enumerate(self._kinds)]
        tensors = [f"%t{slot}" for slot in (self.plan.losses, *self.plan.left.values())]
        results = ", ".join([*tensors, *self._looked_at, "%zero"])
        kinds = ", ".join([*["Tensor"] * len(tensors), *["int"] * (len(self._looked_at) + 1)])
        self._lines.append("  %zero : int = prim::Constant[value=0]()")
        self._lines.append(f"  %all : ({kinds}) = prim::TupleConstruct({results})")
        return f"graph({', '.join(heads)}):\n" + "\n".join([*self._lines, "  return (%all)"])

    def _name(self) -> str:
        self._names += 1
        return f"%v{self._names}"

    def _line(self, kind: str, right: str) -> str:
        name = self._name()
        self._lines.append(f"  {name} : {kind} = {right}")
        return name

    def _constant(self, kind: str, value: Any) -> str:
        key = f"{kind} {value!r}"
        if key not in self._known:
            self._known[key] = f"%c{len(self.constants)}"
            self.constants.append(value)
            self._kinds.append(kind)
        return self._known[key]

    def _argument(self, value: Any, declared: str, call: OperatorCall) -> str:
        if isinstance(value, TensorSlot):
            return f"%t{value.index}"
        if isinstance(value, (list, tuple)):
            return self._list(list(value), declared, call)
        if type(value) not in _KINDS:
            raise NotScriptable(f"{call.name} takes a {type(value).__name__}{call.place}")
        if declared.endswith(("float", "float]")) and type(value) is int:
            value = float(value)
        if declared == "number" and type(value) is bool and _keeps_dtype(call):
            value = int(value)  # the interpreter has no truth values among its numbers
        kind = _KINDS[type(value)]
        return self._constant(kind, _MEMORY_FORMATS[value] if isinstance(value, torch.memory_format) else value)

    def _list(self, values: list[Any], declared: str, call: OperatorCall) -> str:
        if not slots_of(values).isdisjoint(self.plan.numbers):
            raise NotScriptable(f"{call.name} takes a list with a number that changes{call.place}")
        if "Tensor" in declared:
            kind = "Tensor?" if "Optional[Tensor]" in declared else "Tensor"
            parts = ", ".join(self._argument(value, kind, call) for value in values)
            return self._line(f"{kind}[]", f"prim::ListConstruct({parts})")
        kind = next((kind for kind in ("int", "float", "bool") if kind in declared), "")
        if not kind:
            raise NotScriptable(f"{call.name} takes a list of {declared}{call.place}")
        if not values:
            return self._line(f"{kind}[]", "prim::ListConstruct()")
        return self._constant(f"{kind}[]", [float(v) for v in values] if kind == "float" else values)

    def _call(self, call: OperatorCall) -> None:
        known = known_operator(call.op)
        taken = [
            self._argument(value, declared, call) for declared, value in zip(known.types, call.arguments, strict=True)
        ]
        names, unpack = [], []
        for output in call.outputs if known.returns else ():
            if isinstance(output, list):
                names.append(f"{self._name()} : Tensor[]")
                left = ", ".join(self._output(slot) for slot in output)
                unpack.append(f"  {left} = prim::ListUnpack({names[-1].split(' ')[0]})")
            else:
                names.append(self._output(output))
        left = ", ".join(names) + (" = " if names else "")
        self._lines += [f"  {left}{known.name.replace('.', '::')}({', '.join(taken)})", *unpack]
        if known.written_list is not None:
            # The interpreter would drop the operator if nothing read the list of tensors that it writes into.
            self._looked_at.append(self._line("int", f"aten::len({taken[known.written_list]})"))

    def _output(self, slot: int | None) -> str:
        """Name a result; a tensor that is written in place keeps its name."""
        if slot is None or slot in self._defined:
            return f"{self._name()} : Tensor"
        self._defined.add(slot)
        return f"%t{slot} : Tensor"


def _kind_of(slot: int, plan: ReplayPlan) -> str:
    return _KINDS[plan.numbers[slot]] if slot in plan.numbers else "Tensor"


def _keeps_dtype(call: OperatorCall) -> bool:
    """Return True if the result has the dtype of the first tensor, whatever the type of a number beside it."""
    name = call.op._schema.name
    return name.endswith("_") or name in _KEEPS_DTYPE


def _compile(text: str, constants: Sequence[Any], calls: Sequence[OperatorCall]) -> Callable[..., Any]:
    graph = parse_ir(text)
    own = [node for node in graph.nodes() if not node.kind().startswith("prim::") and node.kind() != "aten::len"]
    _fill_in(graph, constants)
    for node, call in zip(own, calls, strict=True):
        _check_operator(node, call)
    made: Callable[..., Any] = create_function("step", graph)
    return made


def _fill_in(graph: Any, constants: Sequence[Any]) -> None:
    first = next(iter(graph.nodes()))
    graph.setInsertPoint(first)
    names = list(graph.inputs())
    start = len(names) - len(constants)
    for place in reversed(range(len(constants))):
        value = names[start + place]
        constant = graph.insertConstant(constants[place])
        value.replaceAllUsesWith(constant)
        graph.eraseInput(start + place)


def _check_operator(node: Any, call: OperatorCall) -> None:
    """Raise NotScriptable if the interpreter chose another overload, by the arguments' types, than was recorded."""
    found = node.schema()
    wanted = known_operator(call.op).schema
    name, overload = call.op._schema.name, call.op._schema.overload_name
    if found == wanted or (overload == "Tensor" and found.startswith((f"{name}.Scalar(", f"{name}.Tensor_Scalar("))):
        return  # a number where the schema says Tensor: the overload for numbers does the same
    if not found.startswith(name):
        raise NotScriptable(f"torch's interpreter has no operator for {call.name} as it was called{call.place}")
    raise NotScriptable(f"torch's interpreter takes {found.split('(')[0]} for {call.name}{call.place}")


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Compare to the bit, NaN included."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    a, b = as_real(a), as_real(b)
    kind = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}.get(a.element_size())
    if kind is None or a.dtype == torch.bool:
        return torch.equal(a, b)
    return torch.equal(a.contiguous().view(kind), b.contiguous().view(kind))


def described(error: Exception) -> str:
    """Describe an error by the first line of its message, with its class unless it is RuntimeError, torch's usual
    one."""
    line = next(iter(str(error).splitlines()), "")
    return line if line and type(error) is RuntimeError else f"{type(error).__name__}: {line}"


def _explained(message: str) -> str:
    """Put the operator in front of the interpreter's message."""
    marked = re.search(
        r"= ?([\w.]+)::(\w+)\([^\n]*\n[ ~]*<--- HERE|^ *([\w.]+)::(\w+)\([^\n]*\n[ ~]*<--- HERE", message, re.M
    )
    name = ".".join(part for part in marked.groups() if part) if marked else "an operator"
    lines = [line for line in message.splitlines() if line.strip()]
    return f"{name} in a captured step: {lines[-1].removeprefix('RuntimeError: ')}"
