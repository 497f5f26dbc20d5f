# SPDX-License-Identifier: MIT
"""Models that are known to fit an array, because one of the same structure was compared with it before.

A sweep puts dozens of models that one function makes into the slots of one array. The first is fused with a model of
the array, which finds every difference. For the next ones it is enough that their structure, and that of the array, are
those of then: all that the comparison looks at, beside the values of tensors and of arguments with a value per model.
"""

from __future__ import annotations

import types
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ..nn.array_module import ArrayModule
from ..nn.random_streams import FUNCTION_STREAM
from ..nn.sharing import held_once
from .layer_table import RULES
from .left_tensors import keeps_more
from .module_walk import modules_below, tensors_of_each

__all__ = ["FittingModel", "remember", "structure_of", "those_that_fit"]

Structure = list[Any]

_PLAIN = frozenset(
    [
        *(bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size),
        *(torch.layout, torch.memory_format),
    ]
)
_REGISTRIES = frozenset(vars(torch.nn.Module()))
_READ_APART = frozenset(("_parameters", "_buffers", "_modules", "training", "_non_persistent_buffers_set"))
_OF_A_LAYER = frozenset(("B", "_ranks", "_last_setting", "extra_attributes"))
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)
#: Structure of each array, and of a model that was compared with it.
_known: weakref.WeakKeyDictionary[Any, tuple[Structure, Structure]] = weakref.WeakKeyDictionary()


class FittingModel:
    """A model on its way into an array `root` that it fits, in the place of another model."""

    def __init__(self, model: torch.nn.Module, root: torch.nn.Module) -> None:
        self._parts = dict(modules_below(model))
        self._tensors = {name: value for name, value, _ in tensors_of_each(model)}
        self._layers: dict[str, torch.nn.Module] = {}
        inside = "\n"
        for path, layer in modules_below(root):
            if not isinstance(layer, ArrayModule) or f"{path}.".startswith(inside):
                continue
            inside = f"{path}." if path else ""
            if self._says_less(path, layer):
                self._add(path, type(layer).from_models([self._parts[path]]))

    def _says_less(self, path: str, layer: ArrayModule) -> bool:
        """Return True if torch's layer at `path` does not hold all that a layer of an array does, as random streams."""
        parts = modules_below(layer)
        lists = any(isinstance(part, ArrayModule) and part.per_model_lists for _, part in parts)
        held = {name for name, _, _ in tensors_of_each(layer)} - {FUNCTION_STREAM}
        return lists or any(_joined(path, name) not in self._tensors for name in held)

    def _add(self, path: str, made: torch.nn.Module) -> None:
        self._layers.update((_joined(path, inner), part) for inner, part in modules_below(made))
        self._tensors |= {_joined(path, name): value[0] for name, value, _ in tensors_of_each(made)}

    def state(self) -> dict[str, torch.Tensor]:
        """Collect the model's tensors by name."""
        return self._tensors

    def shares(self, path: str, name: str) -> bool:
        """Return False: arrays that hold a tensor once have no structure that is known."""
        return False

    def value(self, path: str, name: str) -> Any:
        """Find the model's value in a list of one per model, in the layer at `path`."""
        return getattr(self._layers[path], name)[0]


def those_that_fit(
    array: torch.nn.Module, root: torch.nn.Module, models: Sequence[torch.nn.Module]
) -> list[FittingModel] | None:
    """Return the new models of an array, ready to go into its slots; None if one of them may not fit."""
    then = _known.get(array)
    if then is None or structure_of(root, array=True) != then[0]:
        return None
    if any(structure_of(model) != then[1] for model in models):
        return None
    return [FittingModel(model, root) for model in models]


def remember(array: torch.nn.Module, root: torch.nn.Module, models: Sequence[torch.nn.Module]) -> None:
    """Take note that `models` are as those of `array` are, beside their values."""
    structures = [structure_of(model) for model in models]
    own = structure_of(root, array=True)
    first = structures[0]
    if own is not None and first is not None and all(other == first for other in structures):
        _known[array] = own, first


def structure_of(root: torch.nn.Module, array: bool = False) -> Structure | None:
    """List all of a model, or of an `array`, that fuse compares; None if something in it can change unseen."""
    try:
        return list(_Reader(root, array).parts())
    except _Unknown:
        return None


class _Unknown(Exception):
    """Signal an attribute that is no plain value."""


class _Reader:
    """Reader of the structure of a model or an array."""

    def __init__(self, root: torch.nn.Module, array: bool) -> None:
        self._modules, self._array = modules_below(root), array
        self._numbers: dict[int, int] = {}  # by id: what is in several places has one number
        for _, module in self._modules:
            for held in (module, *module._parameters.values(), *module._buffers.values()):
                self._numbers.setdefault(id(held), len(self._numbers))

    def parts(self) -> Iterator[Any]:
        for path, module in self._modules:
            if self._array and keeps_more(module):
                raise _Unknown
            yield path, type(module), [*self._tensors(module)], self._attributes(module)
            yield [(name, self._number(child)) for name, child in module._modules.items()]
            yield frozenset(module._non_persistent_buffers_set)

    def _tensors(self, module: torch.nn.Module) -> Iterator[Any]:
        shared = getattr(module, "shared_buffers", ())
        for registry in (module._parameters, module._buffers):
            for name, value in registry.items():
                if value is None:
                    yield name
                    continue
                if self._array and held_once(value):
                    raise _Unknown
                shape = value.shape[1:] if self._array and name not in shared else value.shape
                kind = type(value), value.dtype, value.device, value.requires_grad
                yield name, self._numbers[id(value)], shape, *kind
        yield len(module._parameters)

    def _attributes(self, module: torch.nn.Module) -> Any:
        held = vars(module)
        if any(held[name] for name in _REGISTRIES - _READ_APART if name in held):
            raise _Unknown  # hooks
        rule = type(module) if isinstance(module, ArrayModule) else RULES.get(type(module))
        each = () if rule is None else rule.per_model_arguments
        if not isinstance(module, ArrayModule):
            found: Any = [pair for pair in held.items() if pair[0] not in _REGISTRIES]
            found = [pair for pair in found if not (self._array and pair[0].startswith("_fused_"))]
        elif type(module).arguments_of.__func__ is not ArrayModule.arguments_of.__func__:  # type: ignore[attr-defined]
            found = [*type(module).arguments_of(module).items(), *held.get("extra_attributes", {}).items()]
        else:
            found = [pair for pair in held.items() if pair[0] not in _REGISTRIES | _OF_A_LAYER]
            found = [pair for pair in found if not pair[0].startswith("_fused_")]
        return [(name, self._of_each(value) if name in each else self._value(value)) for name, value in found]

    def _of_each(self, value: Any) -> Any:
        """Describe an argument that each model has its own value of."""
        if type(value) is list and self._array:
            value = value[0]
        return float if type(value) is float else self._value(value)

    def _value(self, value: Any) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return kind, value
        if kind in (list, tuple):
            return kind, [self._value(part) for part in value]
        if kind in (dict, OrderedDict):
            return kind, [(self._value(key), self._value(part)) for key, part in value.items()]
        if kind is weakref.ref:
            return kind, self._number(value())
        if isinstance(value, (torch.Tensor, torch.nn.Module)):
            return kind, self._number(value)
        if isinstance(value, _FUNCTIONS) and (value.__module__ or "").startswith("torch."):
            return value
        raise _Unknown

    def _number(self, held: Any) -> int | None:
        if held is None:
            return None
        if id(held) not in self._numbers:
            raise _Unknown
        return self._numbers[id(held)]


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path and name else path or name
