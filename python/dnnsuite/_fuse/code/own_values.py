# SPDX-License-Identifier: MIT
"""Attributes of modules in an array: those that it adds to its copy of a user's module, and the user's in which models
differ without being kept apart by it: a learning rate that a module keeps and its code does not read, a configuration
with other rates of dropout, a factor.

Each model keeps its own values. The array's module has none, or a `StandIn` for the objects of all models. Code that
reads what differs is refused, and its models run one by one, but for numbers: these it gets as a `ModelNumber`.
"""

from __future__ import annotations

import enum
import pathlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from types import NoneType
from typing import Any

import torch
import torch.fx
from torch.nn.utils import parametrize

from ..comparison import REGISTRIES
from ..module_copies import copied
from .late_draws import CodeNames, names_in_code
from .stand_in import ModelNumber, StandIn, attributes_of, differing, elements, follow, is_its_attributes, stand_in

ASKED = "requested"  # by the user, as the reason why models run one by one
#: Types of values that are copied by assigning them, and compared by `==`.
PLAIN_VALUES = (bool, int, float, complex, str, bytes, type(None))


class ModuleCoverage:
    """Notes for `coverage` on a user's module: functions without a rule, and why its models run one by one."""

    def __init__(self) -> None:
        self.asked = False  # for a number that was the same in all models: next time it may not be
        self.reason = ""  # why the models run one by one; empty: they do not
        self.alone = ""  # what was asked of models that are shards of their own, and has an answer there alone
        self.mapped: Counter[str] = Counter()
        self.seconds = 0.0  # spent in what was not fused
        self.calls = 0


#: Attributes of an array's copy of a user's module, whose names are such that no user has them: with what each begins.
BEGIN: dict[str, Callable[[], Any]] = {
    "_fused_B": int,  # the models
    "_fused_report": ModuleCoverage,
    "_fused_code": bool,  # False: the class says `array_forward`, and its forward is for `[B, ...]`
    "_fused_parts": NoneType,  # `ModelParts`, once the models run one by one
    "_fused_known": set,  # methods, and modes, in which its code has run for all models at once
    "_fused_writing": dict,  # by method: its code may write into parameters
    "_fused_withheld": frozenset,  # attributes that differ from model to model: each of `_parts` has its own
    "_fused_own": NoneType,  # by model, values of attributes that differ, at once with the others; `own_values.py`
    "_fused_numbers": frozenset,  # those of them that are numbers, and that its code may read
    "_fused_making": bool,  # each model gets its own of the tensors that the code makes
    "_fused_unsure": bool,  # its code may draw numbers in a way that makes it begin anew
    "_fused_outward": NoneType,  # it refers to modules of the array that are not in it; None: not looked yet
    "_fused_elsewhere": bool,  # its code may draw from Python's or NumPy's generators
    "_fused_acts": bool,  # its code changes objects that modules hold
    "_fused_acts_outside": bool,  # its last call that was looked at has changed something outside of the module
    "_fused_looking": set,  # methods whose code may look at values in a branch that was not taken yet
    "_fused_changed": dict,  # by method: buffers that its first run changed
    "_fused_written": dict,  # by attribute: how often it was set from outside
    "_fused_last": NoneType,  # attributes that were kept before the last call
    "_fused_ranks": dict,  # of the tensors `[B, ...]` that it holds itself
    "_fused_sparse": frozenset,  # attributes that are sparse buffers of each model
}
#: The names of these, and of one that is made late.
INTERNAL = (*BEGIN, "_fused_draws")
#: Attributes that are torch's or an array's, and no user's.
NO_ATTRIBUTES = REGISTRIES.union(INTERNAL)


def is_fused(module: Any) -> bool:
    """Return True for an array's copy of a user's module."""
    return "_fused_B" in module.__dict__


def bare_class(module: torch.nn.Module) -> type[torch.nn.Module]:
    """Return the user's class of a module of an array."""
    return getattr(type(module), "_fused_original", type(module))


def class_of_its_own(kind: Any, module: torch.nn.Module) -> Any:
    """Copy the class that torch has made for a parametrized `module` or a graph; return another's `kind` as it is.

    torch puts a property into that class, and `remove_parametrizations` takes it away: for all modules of the class; a
    graph's forward lies in it, and `recompile` sets it anew.
    """
    if isinstance(module, torch.fx.GraphModule):
        module.__class__ = type(kind)(kind.__name__, kind.__bases__, {"__module__": kind.__module__})
        module.__class__.__qualname__ = kind.__qualname__
        module.recompile()
        return type(module)
    if not parametrize.is_parametrized(module):
        return kind
    body = {name: value for name, value in vars(kind).items() if name not in ("__dict__", "__weakref__")}
    return type(kind)(kind.__name__, kind.__bases__, body)


_DEEP = 6  # containers and objects in one another
_VALUES = (
    *(bool, int, float, complex, str, bytes, type(None), range, pathlib.PurePath, enum.Enum, type),
    *(torch.dtype, torch.device, torch.layout, torch.Size),
)
_CONTAINERS = (list, tuple, set, frozenset)
_PAST_ATTRIBUTES = frozenset({"__dict__", "vars"})  # ways to read that a stand-in does not see
_MISSING = object()


class StandIns:
    """Stand-ins by the objects for which they stand: modules that shared one of these share it again."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], tuple[Any, Sequence[Any]]] = {}

    def of(self, values: Sequence[Any]) -> Any:
        """Return the stand-in for `values`, one of each model; None if there can be none."""
        key = tuple(map(id, values))
        if key not in self._known:
            self._known[key] = stand_in(values), values  # the latter: no other object gets their ids
        return self._known[key][0]


def numbers_among(
    models: Sequence[torch.nn.Module], names: Iterable[str], code: CodeNames, known: StandIns
) -> frozenset[str] | None:
    """Name the numbers that code may read among the attributes `names`, in which modules differ.

    None if models cannot have their own of all of these: code reads, or stores, what is no number. Code that gets at
    one in another way is refused then; what is certain to be refused is not tried.

    Args:
        code: names in the code of the whole model.
    """
    kind = type(models[0])
    mine = names_in_code([models[0]], held=False).read
    if getattr(kind, "array_forward", False) or not mine.isdisjoint(_PAST_ATTRIBUTES):
        return None
    found = set()
    for name in names:
        values = [vars(model).get(name, _MISSING) for model in models]
        if name in code.stored or not all(map(_is_plain, values)):
            return None
        made = known.of(values)
        if made is not None:
            seen = code.stored | (mine - vars(models[0]).keys())
            if not seen.isdisjoint(differing(made)):
                return None
        elif hasattr(kind, name):
            return None
        elif name in code.read:
            kinds = set(map(type, values))
            if name in code.beside_types or float not in kinds or not kinds <= {int, float}:
                return None
            found.add(name)
    return frozenset(found)


def _is_plain(value: Any, depth: int = _DEEP) -> bool:
    """Return True for numbers, strings, and containers and objects of such: a copy means the same."""
    if isinstance(value, _VALUES) and not isinstance(value, torch.nn.Module):
        return True
    kind: Any = type(value)
    if kind in _CONTAINERS:
        parts = list(value)
    elif is_its_attributes(kind):
        parts = [*attributes_of(value).values(), *elements(value), *elements(value).values()]
    else:
        return False
    return depth > 0 and all(_is_plain(part, depth - 1) for part in parts)


def give_own(module: Any, own: list[dict[str, Any]], numbers: frozenset[str], known: StandIns) -> None:
    """Let the models of `module`, a user's in an array, have values of their `own`, each; code may read `numbers`."""
    made = {name: known.of([held[name] for held in own]) for name in own[0]}
    module.__dict__.update(made, _fused_own=own, _fused_numbers=numbers)
    module._fused_withhold(name for name, value in made.items() if value is None)


def own_attributes(module: Any, index: int, memo: dict[int, Any]) -> dict[str, Any]:
    """Copy the own values of model `index`, with what was set in their stand-ins since."""
    own = module.__dict__.get("_fused_own")
    found: dict[str, Any] = {} if own is None else {n: copied(v, memo) for n, v in own[index].items()}
    for name, value in found.items():
        made = vars(module).get(name)
        if isinstance(made, StandIn):
            follow(value, made)
    return found


def read_number(module: Any, name: str) -> Any:
    """Return what code of all models gets for a number of which each has its own; None if it is refused."""
    if name not in module.__dict__["_fused_numbers"] or not module.__dict__["_fused_own"]:
        return None
    values = [held[name] for held in module._fused_own]
    return values[0] if len(values) == 1 else ModelNumber(values, f"{name} of {module._fused_original.__name__}")


def numbers_read(module: torch.nn.Module) -> tuple[tuple[str, tuple[float, ...]], ...]:
    """List the numbers of each model that code may read, by name."""
    own = module.__dict__.get("_fused_own")
    names = sorted(module.__dict__["_fused_numbers"]) if own else ()
    return tuple((name, tuple(held[name] for held in own or ())) for name in names)


def names_of_own(module: Any) -> frozenset[str]:
    """Name the attributes of an array's module of which each model has its own, read or not."""
    own = module.__dict__.get("_fused_own")
    withheld: frozenset[str] = module.__dict__.get("_fused_withheld", frozenset())
    return withheld | (own[0].keys() if own else frozenset())


def set_for_all(module: Any, name: str, value: Any) -> None:
    """Let models have no value of their own any more where one was set in all of them."""
    own = module.__dict__.get("_fused_own")
    if own and name in own[0] and not isinstance(value, StandIn):  # in which something was set
        left = [{other: held[other] for other in held if other != name} for held in own]
        module.__dict__.update(
            _fused_own=left if left[0] else None,
            _fused_withheld=module._fused_withheld - {name},
            _fused_numbers=module._fused_numbers - {name},
        )


def take_own(array: torch.nn.Module) -> bool:
    """Give the modules of an array of one model the values that this one has; return False if they have them."""
    found = False
    memo: dict[int, Any] = {}
    for part in array.modules():
        if is_fused(part) and part.__dict__["_fused_own"] is not None:
            part._fused_restore(own_attributes(part, 0, memo))  # type: ignore[operator]
            found = True
    return found
