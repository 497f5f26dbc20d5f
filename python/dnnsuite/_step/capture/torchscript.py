# SPDX-License-Identifier: MIT
"""Run a list of operators by torch's TorchScript interpreter, under a torch that the replay was not built for.

It accepts almost every operator, and frees a tensor after its last use. Its optimizer is off: operators run in recorded
order. Torch calls it deprecated, and its graphs are private.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ..._torch import below_autograd, create_function, get_graph_optimize, no_script, parse_ir, set_graph_optimize
from .operators import known_operator
from .plan import NotScriptable, OperatorCall, ReplayPlan, TensorSlot, slots_of

_MEMORY_FORMATS = {
    torch.contiguous_format: 0,
    torch.preserve_format: 1,
    torch.channels_last: 2,
    torch.channels_last_3d: 3,
}
_KEEPS_DTYPE = frozenset(
    f"aten::{name}" for name in ("masked_fill", "full_like", "fill", "scatter", "index_fill", "new_full")
)
_KINDS = {bool: "bool", int: "int", float: "float", complex: "complex", str: "str", type(None): "NoneType"}
_KINDS |= {torch.dtype: "int", torch.layout: "int", torch.memory_format: "int", torch.device: "Device"}


class TorchScript:
    """A plan as a function of the interpreter's. Equal steps of all shards and runners share one."""

    def __init__(self, plan: ReplayPlan) -> None:
        if no_script is not None:
            raise NotScriptable(no_script)
        writer = _Writer(plan)
        text = writer.text()
        calls = [replace(call, arguments=(), results=None) for call in plan.calls]
        self._function = compiled(_Graph(text, repr(writer.constants), writer.constants, calls))
        order = [plan.inputs.index(slot) for slot in dict.fromkeys(plan.inputs)]
        self._taken = operator.itemgetter(*order) if len(order) > 1 else lambda inputs: [inputs[i] for i in order]

    def on(self, kept: Sequence[torch.Tensor]) -> Callable[[Sequence[Any]], Sequence[torch.Tensor]]:
        """Make the replay on the tensors that stay, in the order of the plan's."""
        return functools.partial(self._run, kept)

    def _run(self, kept: Sequence[torch.Tensor], inputs: Sequence[Any]) -> Sequence[torch.Tensor]:
        before = get_graph_optimize()  # of this thread
        try:
            set_graph_optimize(False)
            with below_autograd():
                results: Sequence[torch.Tensor] = self._function(*self._taken(inputs), *kept)
            return results
        except RuntimeError as error:
            raise RuntimeError(_explained(str(error))) from None
        finally:
            set_graph_optimize(before)


@dataclass(frozen=True)
class _Graph:
    """Text of a graph, and what its constants are; it holds no tensors of a step."""

    text: str
    described: str
    constants: Sequence[Any] = field(compare=False)
    calls: Sequence[OperatorCall] = field(compare=False)


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


@functools.lru_cache(maxsize=256)
def compiled(wanted: _Graph) -> Callable[..., Any]:
    """Compile a graph, or find the function of an equal one."""
    graph = parse_ir(wanted.text)
    own = [node for node in graph.nodes() if not node.kind().startswith("prim::") and node.kind() != "aten::len"]
    _fill_in(graph, wanted.constants)
    for node, call in zip(own, wanted.calls, strict=True):
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


def _explained(message: str) -> str:
    """Put the operator in front of the interpreter's message."""
    marked = re.search(
        r"= ?([\w.]+)::(\w+)\([^\n]*\n[ ~]*<--- HERE|^ *([\w.]+)::(\w+)\([^\n]*\n[ ~]*<--- HERE", message, re.M
    )
    name = ".".join(part for part in marked.groups() if part) if marked else "an operator"
    lines = [line for line in message.splitlines() if line.strip()]
    return f"{name} in a captured step: {lines[-1].removeprefix('RuntimeError: ')}"
