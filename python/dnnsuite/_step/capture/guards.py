# SPDX-License-Identifier: MIT
"""Guards: assumptions of a recording, checked before each replay; and the Python state of an array's modules.

`module_facts` lists the state that decides a step's operators; what a step leaves in attributes, such as a map of
attention, a replay computes as the step does and puts there. `remembers` finds what code has made of tensors.
"""

from __future__ import annotations

import enum
import functools
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from ..._C import Guards
from ..._C import flatten as flattened
from ..._fuse import attributes_alone, models_apart, numbers_read, tensors_in
from ..._state import PLAIN, PLAIN_TYPES, mark
from ..._torch import HOOKS_OF_GRADIENTS, global_hooks
from ...nn.array_module import ArrayModule
from ...nn.model_tensor import ModelTensor, physical
from ..arguments import opened
from .reach import Reach
from .stand_ins import NUMBERS

_PLAIN = (bool, int, float, str, bytes, type(None), torch.dtype, torch.device)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_INTERNAL = frozenset((*vars(torch.nn.Module()), "_root", "_plain", "B"))


def hook(array: torch.nn.Module) -> str | None:
    """Name a module of `array` with a hook whose work a replay may not do; None without one."""
    if global_hooks.any():
        return "every module (a global hook)"
    for name, module in modules_of(array):
        if not all(map(_only_computes, hooks_of(module))):
            return name or "the array itself"
    return None


def hooks_of(module: torch.nn.Module) -> list[Any]:
    """List the hooks of one module, in the order of `_HOOKS`."""
    return [found for kind in _HOOKS for found in getattr(module, kind).values()]


def _only_computes(found: Any) -> bool:
    """Return True for torch's own hooks, as `weight_norm`, `spectral_norm` and `prune` set them: they only compute
    tensors of their module, which a replay does as well. Those of transformers collect outputs for the forward that is
    under way, which ends with them. A user's hook may do anything."""
    return str(getattr(found, "__module__", "")).startswith(("torch.nn.utils.", "transformers.utils.output_capturing"))


def modules_of(array: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield every module in `array` with its name, and an array's root, which holds them."""
    yield from array.named_modules()
    if "_root" in array.__dict__:
        yield "", array.__dict__["_root"]


def ways(array: torch.nn.Module) -> list[tuple[str, bool]]:
    """List how each part of a user's code runs: the reason to run models one by one (or ""), and True if it makes
    tensors per model. A step in which a part changes its way is not repeatable."""
    reports = ((vars(m).get("_fused_report"), vars(m).get("_fused_making", False)) for _, m in modules_of(array))
    return [(report.reason, making) for report, making in reports if report is not None]


def turns(array: torch.nn.Module) -> Callable[[], list[str]]:
    """Make a fast function that lists the reason why each part runs one by one, "" if it does not."""
    found = [vars(m).get("_fused_report") for _, m in modules_of(array)]
    reports = [report for report in dict.fromkeys(found) if report is not None]
    return lambda: [report.reason for report in reports]


class GuardTable:
    """Guards of a part of what steps read, compared in C++: where they hold, Python looks at nothing.

    They are made anew after a change, and ever more seldom where something changes in every step.
    """

    def __init__(self) -> None:
        self._guards: Guards | None = None
        self._pause = self._left = 0

    def hold(self) -> bool:
        """Return True if nothing has changed; False if the values themselves have to be looked at."""
        return self._guards is not None and self._guards.hold()

    def join(self, guards: Guards) -> bool:
        """Let `guards` guard the same; False in a pause."""
        if self._guards is None:
            return False
        guards.table(self._guards)
        return True

    def renewed(self, fill: Callable[[Guards], None]) -> Guards | None:
        """Make the guards of what is there now, by `fill`; None in a pause. `keep` takes them once the values were
        looked at: a change in between is not lost."""
        before, self._guards = self._guards, None
        if before is not None:
            held: int = before.held  # type: ignore[attr-defined]  # stubgen leaves properties of such types out
            self._pause = 0 if held > self._pause else min(2 * self._pause + 1, _LONGEST_PAUSE)
            self._left = self._pause
        if self._left:
            self._left -= 1
            return None
        guards = Guards()
        fill(guards)
        return guards

    def keep(self, guards: Guards | None) -> None:
        """Compare these from now on."""
        self._guards = guards


_LONGEST_PAUSE = 255  # steps


def modes_of(array: torch.nn.Module) -> Guards:
    """Guard what decides an array's step and may change between two: train or eval, settings of layers, hooks, frozen
    parameters, its modules, parameters and buffers, and the addresses of its buffers."""
    guards = Guards()
    for _, module in modules_of(array):
        guards.item(vars(module), "training")
        guards.attribute(module, "__class__")
        if isinstance(module, ArrayModule):
            guards.result(functools.partial(vars(module).get, "_last_setting"))
        set_by_hooks = [vars(one) for one in hooks_of(module) if _only_computes(one)]
        parts = [part for part in (module._modules, module._parameters, module._buffers) if part]
        for held in (*(getattr(module, name) for name in _HOOKS), *set_by_hooks, *parts):
            guards.container(held, held.copy())
    for parameter in array.parameters():
        for name in ("requires_grad", *HOOKS_OF_GRADIENTS):
            guards.attribute(parameter, name)
    attributes = [
        value for _, module in modules_of(array) for name, value in vars(module).items() if is_state(name, value)
    ]
    kept = [tensor for value in attributes if type(value) not in PLAIN_TYPES for tensor in tensors_in(value)]
    guard_addresses(guards, (*array.buffers(), *map(physical, kept)))
    for held in global_hooks.containers:
        guards.container(held, held.copy())
    for read in (torch.get_default_dtype, torch.is_grad_enabled):
        guards.result(read)
    return guards


def guard_addresses(guards: Guards, tensors: Iterable[torch.Tensor]) -> Guards:
    """Guard the memory of tensors, which `.data = ...` changes, and their order in it."""
    for tensor in tensors:
        if tensor.layout == torch.strided:
            guards.result(tensor.data_ptr)
            if tensor.dim() > 2:  # of fewer dimensions there is one order
                guards.result(tensor.is_contiguous if tensor.is_contiguous() else tensor.stride)
    return guards


def guard_left_out(guards: Guards, array: torch.nn.Module, shards: Sequence[tuple[int, int]]) -> None:
    """Guard that layers leave operators out for the models of a shard, (start, length), as dropout without any rate
    does: what they do not leave out now may run for nothing later."""
    for layer in (module for _, module in modules_of(array) if isinstance(module, ArrayModule)):
        for place in shards:
            if layer.leaves_out(*place):
                guards.result(functools.partial(layer.leaves_out, *place))


def flatten(batch: Any) -> tuple[list[torch.Tensor], tuple[Any, ...] | None, tuple[Any, ...]]:
    """Flatten a batch into its tensors, its signature (their layouts and the values of everything else), and numbers.

    The signature is None if a value cannot be compared.
    """
    return flattened(batch, torch.Tensor, _PLAIN, NUMBERS, _opened)


def _opened(value: Any) -> Any:
    """Take a part of a batch apart; a complex number by its text, for zeros of both signs are equal."""
    return ((repr(value),), ()) if isinstance(value, complex) else opened(value)


def reach_of(
    function: Callable[..., Any] | tuple[Callable[..., Any], ...],
    array: torch.nn.Module | None = None,
    whole: torch.nn.Module | None = None,
) -> Reach:
    """Find the plain values that `function`, or each of several, and the code of an array's modules can see beside
    their arguments: variables that they close over, and the globals and attributes of objects that they name. `array`
    may be a part of the `whole` one."""
    modules = [] if array is None else [module for _, module in modules_of(array)]
    modules += [apart for module in modules[:] for _, apart in models_apart(module)]
    others = [] if whole is None else [module for _, module in modules_of(whole)]
    reach = Reach([*modules, *others, *filter(None, (array, whole))])
    for one in function if type(function) is tuple else (function,):
        reach.call(one)
    reach.code_of((type(module), functools.partial(_state_of, module)) for module in modules)
    return reach


def _state_of(module: torch.nn.Module) -> dict[str, Any]:
    """Collect what code can see in a module; a layer's values of each model are no code's, but its own."""
    own = module.per_model_lists if isinstance(module, ArrayModule) else ()
    return {name: value for name, value in vars(module).items() if is_state(name, value) and name not in own}


def is_state(name: Any, value: Any) -> bool:
    """Return True for an attribute of the user's that is state: not torch's, and not a tensor left by a forward."""
    return name not in _INTERNAL and not name.startswith("_fused_") and type(value) is not ModelTensor


Place = tuple[int, str]  # number of the module among those of the array, and name of the attribute


def tensors_left(array: torch.nn.Module) -> dict[Place, ModelTensor]:
    """Collect the tensors of all models that code has left in attributes."""
    return {
        (number, name): value
        for number, (_, module) in enumerate(modules_of(array))
        for name, value in vars(module).items()
        if type(value) is ModelTensor and is_state(name, None)
    }


def newly_left(array: torch.nn.Module, before: Mapping[Place, ModelTensor]) -> dict[Place, torch.Tensor]:
    """Collect those that were not there `before`, each `[B, ...]`."""
    now = tensors_left(array).items()
    return {place: tensor.value.detach() for place, tensor in now if before.get(place) is not tensor}


def put_back(array: torch.nn.Module, before: Mapping[Place, ModelTensor]) -> None:
    """Leave in attributes what was there `before`, and nothing else."""
    modules: list[Any] = [vars(module) for _, module in modules_of(array)]
    for number, name in tensors_left(array).keys() - before.keys():
        del modules[number][name]
    for (number, name), tensor in before.items():
        modules[number][name] = tensor


def leave_in(array: torch.nn.Module) -> Callable[[Iterable[tuple[Place, torch.Tensor]]], None]:
    """Make a function that leaves tensors `[B, ...]` in the attributes of an array."""
    modules: list[Any] = [vars(module) for _, module in modules_of(array)]

    def leave(found: Iterable[tuple[Place, torch.Tensor]]) -> None:
        for (number, name), tensor in found:
            modules[number][name] = ModelTensor(tensor)

    return leave


_NO_TENSORS = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, range)
_CODE = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)
_DEEP = 8  # containers in containers that are looked into
_OWN = ("_fused_parts", "_fused_own")  # what makes models run one by one, and values of their own


def remembers(array: torch.nn.Module) -> bool:
    """Return True if code of an array's modules may have kept something that it made of its models' tensors, as caches
    do: where another model takes the place of one, that has to go."""
    for _, module in modules_of(array):
        own = vars(module)
        if any(own.get(name) is not None for name in _OWN) or any(type(value) is ModelTensor for value in own.values()):
            return True
        if not all(_is_plain(value, _DEEP) for name, value in own.items() if is_state(name, value)):
            return True
    return False


def _is_plain(value: Any, depth: int) -> bool:
    """Return True for a value that holds no tensor, not in another object either."""
    if isinstance(value, (*_NO_TENSORS, *_CODE)) or type(value) is object:
        return True
    if depth and isinstance(value, (list, tuple, set, frozenset, dict)):
        parts: Sequence[Any] = [*value.keys(), *value.values()] if isinstance(value, dict) else list(value)
        return all(_is_plain(part, depth - 1) for part in parts)
    return False


_SELF_COPIES = (type, types.BuiltinFunctionType, types.ModuleType, enum.Enum)
_NO_FACTS = (frozenset(vars(torch.nn.Module())) - {"training"}) | {"_root", "_plain", "_last_setting", "B"}
#: Of an array's own bookkeeping, `_fused_...`, the attributes that a step depends on; `_one_by_one` tells of others.
_FUSED_FACTS = frozenset(("_fused_code", "_fused_withheld", "_fused_set"))


def module_facts(array: torch.nn.Module, era: object, without: Collection[tuple[int, str]] = ()) -> tuple[Any, ...]:
    """List the Python state of every module of `array`, whatever the number of models.

    Args:
        era: replaces values that cannot be compared: they are equal in copies of one array, and may differ in another.
        without: (number of the module, name) of attributes that are left out.
    """
    facts = _Facts(era)
    return tuple(
        (name, *_of(module, facts, {key for own, key in without if own == number}))
        for number, (name, module) in enumerate(modules_of(array))
    )


def _of(module: torch.nn.Module, facts: _Facts, without: Collection[str]) -> tuple[Any, ...]:
    left_out = {*getattr(module, "per_model_lists", ()), *without, *_NO_FACTS}
    values = [
        (name, facts.of(value))
        for name, value in vars(module).items()
        if name not in left_out and (not name.startswith("_fused_") or name in _FUSED_FACTS)
    ]
    values += [("", facts.of(hook)) for hook in hooks_of(module)]
    recorded = module.recorded_values() if isinstance(module, ArrayModule) else ()
    return type(module), tuple(values), recorded, numbers_read(module), _one_by_one(module, facts.era)


def _one_by_one(module: torch.nn.Module, era: object) -> Any:
    """Describe the way a user's code runs: for all models at once or one by one, and with which attributes."""
    parts, report = module.__dict__.get("_fused_parts"), module.__dict__.get("_fused_report")
    own: tuple[Any, ...] = ()
    if parts is not None and parts.own:  # each model's, which are others in another shard
        own = tuple(module_facts(tree, (era, parts.mark)) for tree in parts.models())
    return own, report is not None and report.reason


def is_bare_or_named(kind: Any) -> bool:
    """Return True for the class of tuples, and for those of named tuples, which hold nothing but their elements."""
    return kind is tuple or hasattr(kind, "_make")


class _Facts:
    """Copies of values that compare equal to those of equal values and to no other."""

    def __init__(self, era: object) -> None:
        self.era = era
        self._objects: dict[int, Any] = {}  # that modules share, as they do a configuration

    def of(self, value: Any) -> Any:
        """Make such a copy of `value`."""
        if isinstance(value, PLAIN):
            return mark(value), value
        if isinstance(value, types.FunctionType):
            return value, value.__code__, self.of(vars(value))
        if isinstance(value, _SELF_COPIES):
            return value
        if type(value) in (list, torch.Size) or (isinstance(value, tuple) and is_bare_or_named(type(value))):
            return type(value), tuple(map(self.of, value))
        if type(value) is dict:
            return tuple((self.of(name), self.of(one)) for name, one in value.items())
        if type(value) in (set, frozenset):
            return type(value), frozenset(map(self.of, value))
        if id(value) not in self._objects:
            self._objects[id(value)] = self.era  # of one that holds itself
            held = attributes_alone(value)
            self._objects[id(value)] = self.era if held is None else (type(value), *map(self.of, held))
        return self._objects[id(value)]
