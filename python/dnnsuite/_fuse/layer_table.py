# SPDX-License-Identifier: MIT
"""Classes of torch modules that an array supports: those with a layer in `dnnsuite.nn`, containers, and those that run
unchanged."""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from .. import nn
from .._code import names_of
from ..errors import InvalidArgument
from ..nn.array_module import ArrayModule
from .code.epilogue_fusion import Sequential
from .comparison import REGISTRIES, same

#: Array layer of each layer class of torch.
RULES: dict[Any, type[ArrayModule]] = {
    layer.torch_class: layer
    for layer in vars(nn).values()
    if isinstance(layer, type)
    and issubclass(layer, ArrayModule)
    and isinstance(layer.__dict__.get("torch_class"), type)
}
CONTAINERS: tuple[type[torch.nn.Module], ...] = (
    torch.nn.Sequential, Sequential, torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.ParameterList,
    torch.nn.ParameterDict,
)  # fmt: skip
_ELEMENTWISE = (
    "Identity", "ReLU", "ReLU6", "GELU", "SiLU", "Mish", "Tanh", "Sigmoid", "Hardswish", "Hardsigmoid",
    "Hardtanh", "LeakyReLU", "ELU", "SELU", "CELU", "Softplus", "Softsign", "LogSigmoid", "Tanhshrink",
    "Softshrink", "Hardshrink", "Threshold",
)  # fmt: skip
#: Layers without parameters that work element by element, so they are right on `[B, ...]` unchanged.
ELEMENTWISE: tuple[type[torch.nn.Module], ...] = tuple(getattr(torch.nn, name) for name in _ELEMENTWISE)


def _called(kind: Any) -> dict[str, Any]:
    """Collect the functions of torch.nn.functional that the forward of a class of torch's may call: it names them
    itself, in another method of the class, or in such a function."""
    found: dict[str, Any] = {}
    callers: list[Any] = [kind.forward]
    for caller in callers:
        for name in _callables_named(caller.__code__):
            found[name] = called = getattr(torch.nn.functional, name)
            callers += [called] if inspect.isfunction(called) and called not in callers else []
        methods = (getattr(kind, name, None) for name in names_of(caller.__code__))
        callers += [one for one in methods if inspect.isfunction(one) and one not in callers]
    return found


@functools.cache
def _callables_named(code: types.CodeType) -> list[str]:
    """Name what code may call of torch.nn.functional. Classes share most of their functions."""
    return [name for name in names_of(code) if callable(getattr(torch.nn.functional, name, None))]


#: Forward of each class of torch's in `RULES`, and the functions that it calls, as they were when its layer was made.
_FORWARD = {kind: (kind.forward, _called(kind)) for kind in RULES}
#: Functions that `register` the layers of other packages, which need not be installed, by package.
_OF_PACKAGES: dict[str, Callable[[], object]] = {}


def register_package(name: str, tell: Callable[[], object]) -> None:
    """Let `tell` register the layers of a package, once models with some of them become an array."""
    _OF_PACKAGES[name] = tell


def know_layers_of(models: Sequence[torch.nn.Module]) -> None:
    """Register the layers of other packages that are in `models`."""
    if _OF_PACKAGES.keys() & sys.modules.keys():
        packages = {type(part).__module__.partition(".")[0] for model in models for part in model.modules()}
        for package in packages & _OF_PACKAGES.keys():
            _OF_PACKAGES.pop(package)()


def register(layer: type[ArrayModule]) -> None:
    """Let `layer` stand for the layers of its `torch_class` in arrays that are made from now on."""
    kind: Any = layer.torch_class
    RULES[kind], _FORWARD[kind] = layer, (kind.forward, _called(kind))


@functools.lru_cache(maxsize=1024)
def _made_by_torch(
    rule: type[ArrayModule], arguments: tuple[tuple[str, Any], ...], kinds: tuple[type, ...]
) -> torch.nn.Module:
    """Make torch's layer on the meta device, cached. `kinds` are the types of the values: without them the cache would
    take 0.0 for 0."""
    with torch.device("meta"):
        return rule.torch_class(**dict(arguments))


def says_all(rule: type[ArrayModule], layer: torch.nn.Module) -> bool:
    """Return True if a layer's constructor arguments describe it in full: no attribute was set since."""
    by_default = rule.arguments_of.__func__ is ArrayModule.arguments_of.__func__  # type: ignore[attr-defined]
    if by_default and rule.arguments is None:
        inner = (part for part in layer.modules() if part is not layer and type(part) in RULES)
        return all(as_torch_made_it([part]) and says_all(RULES[type(part)], part) for part in inner)
    arguments = tuple(rule.arguments_of(layer).items())
    if any(isinstance(value, (torch.Tensor, list)) for _, value in arguments):
        return True  # of a loss, whose arguments are all it has
    parts = dict(layer.named_modules())
    kinds = tuple(type(value) for _, value in arguments)
    return all(
        path in parts and name in vars(parts[path]) and same(value, vars(parts[path])[name])
        for path, part in _made_by_torch(rule, arguments, kinds).named_modules()
        for name, value in vars(part).items()
        if name not in REGISTRIES
    )


def torchs_classes(layers: Iterable[torch.nn.Module]) -> frozenset[Any]:
    """Collect torch's classes of the layers of an array, whose forward they stand for."""
    return frozenset(
        layer.torch_class
        for layer in layers
        if isinstance(layer, ArrayModule) and RULES.get(layer.torch_class) is type(layer)
    )


def _replaced(kind: Any) -> str | None:
    """Name what was replaced of a class of torch's since its layer was made: its forward, or a function in it."""
    forward, called = _FORWARD[kind]
    if kind.forward is not forward:
        return f"{kind.__module__}.{kind.__name__}.forward"
    now = torch.nn.functional
    changed = (name for name, one in called.items() if getattr(now, name, None) is not one)
    return next((f"torch.nn.functional.{name}" for name in changed), None)


def refuse_other_forwards(kinds: Iterable[Any]) -> None:
    """Refuse classes of torch's of which the forward, or a function that it calls, was replaced since their layers
    became layers of an array."""
    for kind in kinds:
        name = _replaced(kind)
        if name is not None:
            raise InvalidArgument(
                f"{name} was replaced after models with {kind.__name__} layers were fused, and the array's layers do "
                "not call it: replace it before dnnsuite.fuse, or put torch's back"
            )


def as_torch_made_it(layers: Sequence[torch.nn.Module]) -> bool:
    """Return True for layers of one class in `RULES` whose methods were not replaced, in the class or in a layer."""
    kind = type(layers[0])
    if kind not in RULES or _replaced(kind):
        return False
    usual = REGISTRIES | RULES[kind].set_by_constructor
    return not any(hasattr(kind, name) for layer in layers for name in vars(layer) if name not in usual)
