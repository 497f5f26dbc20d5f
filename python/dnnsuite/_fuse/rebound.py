# SPDX-License-Identifier: MIT
"""Functions that hold a module of their model, as `old = m.forward; m.forward = lambda x: 2 * old(x)` makes them.

A copy of a model keeps its functions as they are, so they would go on with the module that was copied. Here they get
the copy's.
"""

from __future__ import annotations

import copy
import functools
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from ..errors import InvalidArgument
from ..nn.array_module import ArrayModule
from ..nn.sharing import SharedState
from .code.fused_attributes import PLAIN_VALUES
from .comparison import PROXIES, referred
from .left_tensors import parts_inside

_REGISTRIES = frozenset(vars(torch.nn.Module()))
_HOLDING = frozenset((types.FunctionType, list, tuple, dict))
_DEEP = 4  # containers, objects and functions in one another that are looked into
_MANY = 64  # functions in a collection that are looked for


class ReboundFunction:
    """Function that holds `modules` of the tree in which it is an attribute; it is copied along with them."""

    def __init__(self, function: types.FunctionType, modules: list[torch.nn.Module]) -> None:
        self.function, self.modules = function, modules
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> ReboundFunction:
        own = [copy.deepcopy(module, memo) for module in self.modules]
        others = {id(old): new for old, new in zip(self.modules, own, strict=True)}
        return ReboundFunction(_exchanged(self.function, others), own)


def rebind(root: torch.nn.Module, copies: dict[int, Any], registered: Mapping[int, str]) -> None:
    """Let functions that are attributes in `root` hold its modules: `copies`, by the id of what was copied.

    Raises:
        InvalidArgument: for a function that holds something else of the models, `registered` by id.
    """
    for module in root.modules():
        for name, value in list(vars(module).items()):
            new = _rebound(value, copies)
            if new is not value:
                module.__dict__[name] = new
            if isinstance(value, types.FunctionType):
                _refuse_others(f"{type(module).__name__}.{name}", value, copies, registered)
        for hooks in hooks_of(module):
            hooks.update((key, _rebound(value, copies)) for key, value in list(hooks.items()))


def hooks_of(module: torch.nn.Module) -> tuple[dict[int, Any], dict[int, Any]]:
    """Return the forward hooks of a module, and those before the forward."""
    return module._forward_hooks, module._forward_pre_hooks


def _refuse_others(
    name: str, function: types.FunctionType, copies: dict[int, Any], registered: Mapping[int, str]
) -> None:
    for held in _tensors_and_modules_in(function, set()):
        if id(held) in registered and not (isinstance(held, torch.nn.Module) and id(held) in copies):
            raise InvalidArgument(
                f"{name} is a function that holds {registered[id(held)] or 'the whole model'} of the model that was "
                "copied, and would go on with it: let it hold a module that has it, or make it a method"
            )


def rebind_later(modules: Iterable[torch.nn.Module], copies: dict[int, Any]) -> None:
    """Let functions that were set on an array's modules after it was made, and hold one of them, hold a copy's."""
    others = dict(copies)
    for module in modules:
        places: tuple[dict[Any, Any], ...] = (module.__dict__, *hooks_of(module))
        for held in places:
            for name, value in list(held.items()):
                if name not in _REGISTRIES and type(value) in _HOLDING and holds_module(value):
                    held[name] = _exchanged(value, others)


def rebind_model(model: torch.nn.Module, root: torch.nn.Module, copies: dict[int, Any]) -> None:
    """Let functions that were set on an array's modules hold the modules of a model that is copied out of `root`."""
    others = dict(copies)
    for module in model.modules():
        for value in module.__dict__.values():
            if type(value) in _HOLDING and holds_module(value):
                arrays = (one for one in _modules_in(value) if one.__dict__.get("_root") is root)
                others.update({id(array): model for array in arrays})
    rebind_later(model.modules(), others)


def holds_module(value: Any) -> bool:
    """Return True for a function, method or partial that holds a module, and for a short collection of such."""
    kind = type(value)
    if kind in (types.MethodType, functools.partial):
        return any(True for _ in _modules_in(value))
    if kind is types.FunctionType:
        held: Any = (value.__closure__, value.__defaults__, value.__kwdefaults__)
        return held != (None, None, None) and any(True for _ in _modules_in(value))
    if kind in (list, tuple, dict) and len(value) <= _MANY:
        return any(map(holds_module, value.values() if kind is dict else value))
    return False


def refers_outside(module: torch.nn.Module) -> bool:
    """Return True if a module of an array, or one in it, refers to a module of the array that is not in it, such as its
    parent: it cannot run model by model without that."""
    inside = {id(part) for part in module.modules()}
    return any(
        id(found) not in inside
        for part in module.modules()
        if not isinstance(part, ArrayModule)
        for name, value in vars(part).items()
        if name not in _REGISTRIES and not name.startswith("_fused_")
        for found in arrays_in(value)
    )


def arrays_in(value: Any, depth: int = _DEEP) -> Iterator[torch.nn.Module]:
    """Yield arrays, and modules of arrays, to which a value refers, also weakly."""
    if type(value) in PROXIES or isinstance(value, weakref.ref):
        value = referred(value) if type(value) in PROXIES else value()
    if isinstance(value, torch.nn.Module):
        if isinstance(value, SharedState):
            yield value
    elif depth and not isinstance(value, (*PLAIN_VALUES, torch.Tensor)):
        for part in _parts(value) or parts_inside(value):
            yield from arrays_in(part, depth - 1)


def rebound(value: Any, copies: Mapping[int, Any]) -> Any:
    """Copy a function or partial, with `copies` (by id) in place of the modules that it holds."""
    return _exchanged(value, dict(copies))


def plain(root: torch.nn.Module) -> None:
    """Put ordinary functions in place of the `ReboundFunction`s in `root`."""
    for module in root.modules():
        for held in (module.__dict__, *hooks_of(module)):
            _plain_in(held)


def _plain_in(held: dict[Any, Any]) -> None:
    for name, value in list(held.items()):
        if type(value) is ReboundFunction:
            held[name] = value.function


def _rebound(value: Any, copies: dict[int, Any]) -> Any:
    if not isinstance(value, types.FunctionType):
        return value
    own = {id(found): copies[id(found)] for found in _modules_in(value) if id(found) in copies}
    modules = list(own.values())
    return ReboundFunction(_exchanged(value, own), modules) if modules else value


def _parts(value: Any) -> tuple[Any, ...]:
    """Return what a function, bound method, partial or collection holds."""
    if isinstance(value, types.FunctionType):
        cells = tuple(cell for cell in value.__closure__ or ())
        keywords = tuple((value.__kwdefaults__ or {}).values())
        return (*cells, *(value.__defaults__ or ()), *keywords)
    if isinstance(value, types.CellType):
        try:
            return (value.cell_contents,)
        except ValueError:  # not assigned yet
            return ()
    if isinstance(value, types.MethodType):
        return (value.__self__,)
    if isinstance(value, functools.partial):
        return (value.func, *value.args, *value.keywords.values())
    if type(value) in (list, tuple):
        return tuple(value)
    return tuple(value.values()) if type(value) is dict else ()


def _modules_in(value: Any) -> Iterator[torch.nn.Module]:
    found = _tensors_and_modules_in(value, set())
    return (one for one in found if isinstance(one, torch.nn.Module))


def _tensors_and_modules_in(value: Any, seen: set[int]) -> Iterator[torch.nn.Module | torch.Tensor]:
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, (torch.nn.Module, torch.Tensor)):
        yield value
    else:
        for part in _parts(value):
            yield from _tensors_and_modules_in(part, seen)


def _exchanged(value: Any, others: dict[int, Any]) -> Any:
    """Copy `value` with other modules in place of those in `others`; what holds none of them stays the same object."""
    if id(value) in others:
        return others[id(value)]
    if not any(id(module) in others for module in _modules_in(value)):
        return value
    change: Callable[[Any], Any] = functools.partial(_exchanged, others=others)
    if isinstance(value, types.FunctionType):
        return _function(value, change, others)
    if isinstance(value, types.MethodType):
        return _bound(value.__func__, value.__self__, change(value.__self__))
    if isinstance(value, functools.partial):
        keywords = {name: change(part) for name, part in value.keywords.items()}
        return functools.partial(change(value.func), *map(change, value.args), **keywords)
    if isinstance(value, dict):
        return {key: change(part) for key, part in value.items()}
    return type(value)(map(change, value))


def _bound(function: Any, old: Any, new: Any) -> Any:
    """Bind a method of `old` to `new`; one of an array's layer is torch's own for a model's."""
    name = getattr(function, "__name__", "")
    of_class = getattr(type(old), name, None) is function and hasattr(type(new), name)
    return getattr(type(new), name).__get__(new) if of_class else types.MethodType(function, new)


def _function(value: types.FunctionType, change: Callable[[Any], Any], others: dict[int, Any]) -> types.FunctionType:
    cells = value.__closure__ or ()
    kept = [not any(id(m) in others for m in _modules_in(cell)) for cell in cells]
    own = tuple(cell if keep else types.CellType() for cell, keep in zip(cells, kept, strict=True))
    made = types.FunctionType(value.__code__, value.__globals__, value.__name__, None, own)
    others[id(value)] = made  # before its cells, one of which may hold it
    for cell, old, keep in zip(own, cells, kept, strict=True):
        if not keep:
            cell.cell_contents = change(old.cell_contents)
    made.__defaults__ = value.__defaults__ and tuple(map(change, value.__defaults__))
    made.__kwdefaults__ = value.__kwdefaults__ and {k: change(v) for k, v in value.__kwdefaults__.items()}
    made.__dict__.update(value.__dict__)
    made.__qualname__, made.__doc__, made.__module__ = value.__qualname__, value.__doc__, value.__module__
    return made
