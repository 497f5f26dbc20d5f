# SPDX-License-Identifier: MIT
"""Guards: assumptions of a recording, checked before each replay."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from ..._fuse import models_apart
from ..._torch import global_hooks, has_gradient_hook
from ...nn.array_module import ArrayModule
from ...nn.model_tensor import ModelTensor
from ..batches import opened
from .arithmetic import is_number
from .reach import Reach

_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)
_INTERNAL = frozenset((*vars(torch.nn.Module()), "_root", "_plain", "B"))
_NO_VALUES = frozenset(("_plain", *vars(torch.nn.Module())))  # beside those of the array and its modules


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
    tensors of their module, which a replay does as well. A user's hook may do anything."""
    return type(found).__module__.startswith("torch.nn.utils.")


def modules_of(array: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield every module in `array` with its name, and an array's root, which holds them."""
    yield from array.named_modules()
    if "_root" in array.__dict__:
        yield "", array.__dict__["_root"]


def ways(array: torch.nn.Module) -> list[tuple[str, bool]]:
    """List how each part of a user's code runs: the reason to run models one by one (or ""), and True if it makes
    tensors per model. A step in which a part changes its way is not repeatable."""
    reports = (
        (vars(m).get("_fused_report"), vars(m).get("_fused_making", False)) for _, m in modules_of(array)
    )
    return [(report.reason, making) for report, making in reports if report is not None]


def turns(array: torch.nn.Module) -> Callable[[], list[str]]:
    """Make a fast function that lists the reason why each part runs one by one, "" if it does not."""
    found = [vars(m).get("_fused_report") for _, m in modules_of(array)]
    reports = [report for report in dict.fromkeys(found) if report is not None]
    return lambda: [report.reason for report in reports]


class ArrayModes:
    """Modes of an array that may change between two steps: train or eval, settings of layers, hooks, frozen parameters,
    its modules, parameters and buffers, and the addresses of these, which an edit changes, or `.data = ...`.

    Compared in every step, so the list is short."""

    def __init__(self, array: torch.nn.Module) -> None:
        self._modules = [module for _, module in modules_of(array)]
        self._layers = [vars(module) for module in self._modules if isinstance(module, ArrayModule)]
        self._parameters = list(array.parameters())
        self._tensors = [*self._parameters, *array.buffers()]
        self._hooks = [getattr(m, name) for m in self._modules for name in _HOOKS]
        self._set_by_hooks = [vars(one) for m in self._modules for one in hooks_of(m) if _only_computes(one)]
        parts = [part for m in self._modules for part in (m._modules, m._parameters, m._buffers)]
        self._parts = [part for part in parts if part], [dict(part) for part in parts if part]
        self._before = self._read()

    def _read(self) -> tuple[Any, ...]:
        return (
            [m.training for m in self._modules],
            [layer.get("_last_setting") for layer in self._layers],
            [p.requires_grad for p in self._parameters],
            any(map(has_gradient_hook, self._parameters)),
            [tensor.data_ptr() for tensor in self._tensors],
            list(map(dict, filter(None, self._hooks))),
            [_plain_values(held) for held in self._set_by_hooks],
            global_hooks.any(),
            torch.get_default_dtype(),
        )

    def changed(self) -> bool:
        """Return True if one of them has changed since this was made."""
        return self._read() != self._before or self._has_other_parts()

    def _has_other_parts(self) -> bool:
        """Return True if a module, parameter or buffer was replaced."""
        now, known = self._parts
        try:
            return now != known  # at the speed of C where all are the same objects
        except RuntimeError:  # two tensors have no one answer
            return True


class LeftOut:
    """Layers that leave operators out for the models of a shard, as dropout without any rate does.

    Compared in every step. What they do not leave out now may run for nothing later."""

    def __init__(self, array: torch.nn.Module, shards: Sequence[tuple[int, int]]) -> None:
        """`shards` are (start, length) of each."""
        layers = [module for _, module in modules_of(array) if isinstance(module, ArrayModule)]
        each = [(layer, *place) for layer in layers for place in shards]
        self._known = [
            (layer, start, length) for layer, start, length in each if layer.leaves_out(start, length)
        ]

    def changed(self) -> bool:
        """Return True if one of them leaves nothing out any more."""
        return not all(layer.leaves_out(start, length) for layer, start, length in self._known)


def _plain_values(held: dict[str, Any]) -> dict[str, Any]:
    """Select numbers, strings and the like among attributes; others are equal only if they are the same object."""
    return {name: value if isinstance(value, _PLAIN) else id(value) for name, value in held.items()}


def flatten(batch: Any) -> tuple[list[torch.Tensor], tuple[Any, ...] | None, tuple[Any, ...]]:
    """Flatten a batch into its tensors, its signature (their layouts and the values of everything else), and numbers.

    The signature is None if a value cannot be compared. Runs in every step, so it must be fast.
    """
    tensors: list[torch.Tensor] = []
    signature: list[Any] = []
    numbers: list[Any] = []
    known = _flatten(batch, tensors, signature, numbers)
    return tensors, tuple(signature) if known else None, tuple(numbers)


def _flatten(value: Any, tensors: list[torch.Tensor], signature: list[Any], numbers: list[Any]) -> bool:
    kind = type(value)
    if kind is torch.Tensor:
        signature += (value.shape, value.stride(), value.dtype, value.requires_grad)
        for place, other in enumerate(tensors):  # the same tensor twice is another step than two tensors
            if other is value:
                signature.append(place)
        tensors.append(value)
        return True
    if kind is tuple or kind is list:
        signature.append(len(value))
        return all(_flatten(part, tensors, signature, numbers) for part in value)
    if kind is dict:
        signature.append(tuple(value))
        return _flatten(tuple(value.values()), tensors, signature, numbers)
    if is_number(value):
        signature.append(kind)
        numbers.append(value)
        return True
    found = None if isinstance(value, _PLAIN) else opened(value)
    if found is not None:
        signature += (kind, found[0])
        return _flatten(tuple(found[1]), tensors, signature, numbers)
    signature += (kind, value)
    return isinstance(value, _PLAIN)


def reach_of(
    function: Callable[..., Any] | tuple[Callable[..., Any], ...],
    array: torch.nn.Module | None = None,
    whole: torch.nn.Module | None = None,
) -> Reach:
    """Find the plain values that `function`, or each of several, and the code of an array's modules can see beside
    their arguments: variables that they close over, and the globals and attributes of objects that they name. `array` may be a part of
    the `whole` one."""
    modules = [] if array is None else [module for _, module in modules_of(array)]
    modules += [apart for module in modules[:] for _, apart in models_apart(module)]
    others = [] if whole is None else [module for _, module in modules_of(whole)]
    reach = Reach([*modules, *others, *filter(None, (array, whole))])
    for one in function if type(function) is tuple else (function,):
        reach.call(one)
    reach.code_of((type(module), functools.partial(_state_of, module)) for module in modules)
    return reach


def _state_of(module: torch.nn.Module) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if is_state(name, value)}


def is_state(name: Any, value: Any) -> bool:
    """Return True for an attribute of the user's that is state: not torch's, and not a tensor left by a forward."""
    return name not in _INTERNAL and not name.startswith("_fused_") and type(value) is not ModelTensor


def function_values(
    function: Callable[..., Any], array: torch.nn.Module | None = None
) -> Callable[[], list[Any]]:
    """Make a fast function that reads all values that `reach_of` finds."""
    readers = reach_of(function, array).readers
    return lambda: [read() for read in readers]
