# SPDX-License-Identifier: MIT
"""Guards: assumptions of a recording, checked before each replay."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from ..._fuse import has_gradient_hook
from ..._torch import global_hooks
from ...nn.array_module import ArrayModule

_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
_CONTAINERS = (list, dict, set)
_SHORT = 16  # containers up to this length are compared value by value, others by their length
_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)


def hook(array: torch.nn.Module) -> str | None:
    """Name a module of `array` with a hook, or None: a replay would not call it."""
    if global_hooks.any():
        return "every module (a global hook)"
    for name, module in modules_of(array):
        if any(getattr(module, hooks) for hooks in _HOOKS):
            return name or "the array itself"
    return None


def modules_of(array: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield every module in `array` with its name, and an array's root, which holds them."""
    yield from array.named_modules()
    if "_root" in array.__dict__:
        yield "", array.__dict__["_root"]


class ArrayModes:
    """Modes of an array that may change between two steps: train or eval, settings of its layers, hooks, frozen or not,
    and the place of its parameters, which an edit moves. They are compared in every step, so they are few."""

    def __init__(self, array: torch.nn.Module) -> None:
        self._modules = [module for _, module in modules_of(array)]
        self._layers = [vars(module) for module in self._modules if isinstance(module, ArrayModule)]
        self._parameters = list(array.parameters())
        self._hooks = [getattr(m, name) for m in self._modules for name in _HOOKS[:3]]
        self._before = self._read()

    def _read(self) -> tuple[Any, ...]:
        return (
            [m.training for m in self._modules],
            [layer.get("_last_setting") for layer in self._layers],
            [p.requires_grad for p in self._parameters],
            any(map(has_gradient_hook, self._parameters)),
            self._parameters[0].data_ptr() if self._parameters else 0,
            sum(map(len, self._hooks)),
        )

    def changed(self) -> bool:
        return self._read() != self._before


def flatten(batch: Any) -> tuple[list[torch.Tensor], tuple[Any, ...] | None]:
    """Flatten a batch into its tensors and its signature: their layouts and the values of everything else.

    The signature is None if something has no value that can be compared. This runs in every step, so it does little.
    """
    tensors: list[torch.Tensor] = []
    signature: list[Any] = []
    known = _flatten(batch, tensors, signature)
    return tensors, tuple(signature) if known else None


def _flatten(value: Any, tensors: list[torch.Tensor], signature: list[Any]) -> bool:
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
        return all(_flatten(part, tensors, signature) for part in value)
    if kind is dict:
        signature.append(tuple(value))
        return _flatten(tuple(value.values()), tensors, signature)
    signature += (kind, value)
    return isinstance(value, _PLAIN)


def module_values(array: torch.nn.Module) -> dict[str, Any]:
    """Collect the plain Python values in the modules of `array`, by name, and the lengths of containers."""
    return {
        f"{name}.{attribute}".lstrip("."): value
        for name, module in modules_of(array)
        for attribute, value in _plain(vars(module).items())
        if attribute not in ("training", "_parameters", "_buffers", "_modules", *_HOOKS)
    }


def function_values(function: Callable[..., Any]) -> Callable[[], list[Any]]:
    """Make a quick reader of the plain values that `function` can see beside its arguments: variables that it closes
    over, and the globals and attributes of its object that it names."""
    readers: list[Callable[[], Any]] = []
    for found, owner in _functions(function):
        for cell in found.__closure__ or ():
            readers.append(functools.partial(_cell_value, cell))
        for name in found.__code__.co_names:
            if isinstance(found.__globals__.get(name), (*_PLAIN, *_CONTAINERS)):
                readers.append(functools.partial(_named_value, found.__globals__, name))
            if name in getattr(owner, "__dict__", ()):
                readers.append(functools.partial(_named_value, vars(owner), name))
    return lambda: [read() for read in readers]


def _functions(function: Any) -> Iterator[tuple[types.FunctionType, Any]]:
    """Yield the Python functions that a call of `function` runs first, each with the object that it belongs to."""
    if isinstance(function, functools.partial):
        yield from _functions(function.func)
    elif isinstance(function, types.MethodType):
        yield from ((found, function.__self__) for found, _ in _functions(function.__func__))
    elif isinstance(function, types.FunctionType):
        yield function, None
    else:
        for name in ("forward", "__call__"):
            method = getattr(type(function), name, None)
            if isinstance(method, types.FunctionType):
                yield method, function


def _plain(items: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    for name, value in items:
        if isinstance(value, (*_PLAIN, *_CONTAINERS)):
            yield name, _value(value)


def _value(value: Any, depth: int = 2) -> Any:
    """Make a copy of `value` that compares unequal when `value` has become another one."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, dict):
        value = tuple(value.items())
    if not isinstance(value, (tuple, *_CONTAINERS)):
        return id(value)
    if depth and len(value) <= _SHORT:
        return tuple(_value(part, depth - 1) for part in value)
    return len(value)


def _cell_value(cell: types.CellType) -> Any:
    try:
        return _value(cell.cell_contents)
    except ValueError:  # empty
        return None


def _named_value(names: Any, name: str) -> Any:
    return _value(names.get(name))
