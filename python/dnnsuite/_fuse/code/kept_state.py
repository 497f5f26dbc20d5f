# SPDX-License-Identifier: MIT
"""State that a forward may change before it has to start again: buffers, attributes, generators."""

from __future__ import annotations

import collections
import copy
import random
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from ..._state import Contents
from ..._torch import hidden_from_modes
from ...nn.forward_state import state
from ...nn.model_tensor import physical
from ...nn.random_streams import FUNCTION_STREAM
from ..hooks import hooks_in
from .fused_attributes import is_fused
from .kept_outside import KeptOutside, contents_of
from .stand_in import StandInDict

_CONTAINERS = (list, dict, set, collections.deque)
_REGISTRIES = frozenset(vars(torch.nn.Module()))


_MISSING = object()  # in place of the value of an attribute that was not there


class KeptAttributes:
    """Attributes of a user's module, and the contents of its plain containers."""

    def __init__(self, module: Any) -> None:
        held = {k: v for k, v in vars(module).items() if k not in _REGISTRIES and not k.startswith("_fused_")}
        self.module, self.held = module, held
        contents = [v for v in held.values() if type(v) in _CONTAINERS or isinstance(v, StandInDict)]
        self.contents = [(value, copy.copy(value)) for value in contents]

    def put_back(self) -> None:
        mine = vars(self.module)
        for name in [k for k in mine if k not in _REGISTRIES and not k.startswith("_fused_")]:
            del mine[name]
        mine.update(self.held)
        for value, content in self.contents:
            value.clear()
            (value.extend if hasattr(value, "extend") else value.update)(content)

    def changed(self) -> bool:
        """Return True if the contents of a container are other ones."""
        return any(not _same(value, content) for value, content in self.contents)


class SharedNumbers:
    """State of the generators of the process: of torch's and, if `others`, of Python's random module and NumPy's.

    Reading those two, and comparing them, takes 60 µs.
    """

    def __init__(self, others: bool = True) -> None:
        self._others = (random.getstate(), np.random.get_state()) if others else None
        with hidden_from_modes():
            self.torch = torch.get_rng_state()

    def torch_moved(self) -> bool:
        """Return True if numbers were drawn from torch's since; other threads may have drawn them."""
        with hidden_from_modes():
            return not torch.equal(self.torch, torch.get_rng_state())

    def moved(self) -> bool:
        """Return True if numbers were drawn from Python's or NumPy's since, which were looked at."""
        if self._others is None:
            return False
        python, (kind_before, words_before, *rest_before) = self._others
        kind, words, *rest = np.random.get_state()
        same = (kind, *rest) == (kind_before, *rest_before) and np.array_equal(words, words_before)
        return not same or python != random.getstate()

    def put_back(self) -> None:
        """Put Python's and NumPy's back; other threads may be using torch's."""
        if self._others is not None:
            random.setstate(self._others[0])
            np.random.set_state(self._others[1])


class Kept(NamedTuple):
    """State before a forward that may have to start again."""

    buffers: list[tuple[torch.nn.Module, str, torch.Tensor | None, torch.Tensor | None]]
    parameters: list[tuple[torch.Tensor, torch.Tensor]]
    flags: list[tuple[torch.Tensor, bool]]
    attributes: list[KeptAttributes]
    objects: Contents
    numbers: SharedNumbers | None  # None: of a later forward
    stream: tuple[torch.Tensor, torch.Tensor] | None = None  # of the functions that draw, and what it was
    outside: KeptOutside | None = None
    hooks: Sequence[tuple[dict[int, Any], dict[int, Any]]] = ()  # of the modules, and what they were

    def acts_outside(self) -> bool:
        """Return True if a forward has changed something outside of the modules."""
        return self.outside is not None and self.outside.changed()


def keep(root: Any, parameters: bool = False, objects: bool = True, others: bool = True) -> Kept:
    """Copy every buffer under `root`, the flags of its parameters, and the Python state of its modules. The copies are
    hidden from a recorder: they are made in some forwards only.

    Args:
        parameters: copy the parameters too, for code that may write into them.
        objects: note flags, and copy what objects and nested containers hold, for code not seen to leave them alone.
        others: note the state of Python's and NumPy's generators, for code that may draw from them.
    """
    modules = list(root.modules())
    with hidden_from_modes():
        buffers = [
            (module, name, buffer, None if buffer is None else buffer.clone())
            for module in modules
            for name, buffer in module._buffers.items()
        ]
        held = _held_parameters(modules if parameters else [])
        flags = [
            (parameter, parameter.requires_grad)
            for module in (modules if objects else ())
            for parameter in module._parameters.values()
            if parameter is not None and parameter.is_leaf
        ]
        attributes = [KeptAttributes(m) for m in modules if is_fused(m)]
        contents = contents_of(value for one in attributes if objects for value in one.held.values())
    hooks = [(each, dict(each)) for module in modules for each in hooks_in(module) if each]
    return Kept(buffers, held, flags, attributes, contents, SharedNumbers(others), _stream(), hooks=hooks)


def changed(kept: Kept) -> bool:
    """Return True if a forward has changed the contents of a container or an object of the modules."""
    return any(attributes.changed() for attributes in kept.attributes) or kept.objects.changed()


def keep_again(root: Any, names: Collection[str], parameters: bool) -> Kept:
    """Copy the buffers `names` under `root`, as `keep` does: for a later forward, which changes what the first did."""
    modules = list(root.modules())
    with hidden_from_modes():
        buffers = []
        for name in names:
            path, _, last = name.rpartition(".")
            module = root.get_submodule(path)
            buffer = module._buffers.get(last)
            buffers.append((module, last, buffer, None if buffer is None else buffer.clone()))
        held = _held_parameters(modules if parameters else [])
    attributes = [KeptAttributes(m) for m in modules if is_fused(m)]
    return Kept(buffers, held, [], attributes, contents_of(()), None, _stream())


def _stream() -> tuple[torch.Tensor, torch.Tensor] | None:
    """Copy the stream of functions that draw, which the array's root holds for all its parts."""
    stream: torch.Tensor | None = getattr(state.random, "_buffers", {}).get(FUNCTION_STREAM)
    if stream is None:
        return None
    with hidden_from_modes():
        return stream, stream.clone()


def _held_parameters(modules: Iterable[torch.nn.Module]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Pair the parameters that modules hold themselves with copies."""
    held = (p for module in modules for p in module._parameters.values() if p is not None)
    return [(parameter.data, parameter.detach().clone()) for parameter in held]


def changed_buffers(root: Any, kept: Kept) -> list[str]:
    """Name the buffers under `root` that have other values, or are others, than when they were kept."""
    names = {id(module): f"{path}." if path else "" for path, module in root.named_modules()}
    found = []
    with hidden_from_modes():
        for module, name, buffer, value in kept.buffers:
            now: Any = module._buffers.get(name)
            if now is None and buffer is None:
                continue
            other: Any = value  # None, and other tensors than before, are not compared
            same = now is buffer and type(now) is torch.Tensor and (now.is_meta or torch.equal(now, other))
            if not same:
                found.append(names[id(module)] + name)
    return found


def _same(value: Any, content: Any) -> bool:
    try:
        return bool(value == content)  # at the speed of C where all are the same objects
    except Exception:  # tensors and arrays have no one answer
        return False


def note_written(module: Any, name: str) -> None:
    """Note the value of an attribute that code of all models is about to set."""
    state.written.append((module, name, vars(module).get(name, _MISSING)))


def undo_written(begun: int) -> None:
    """Give attributes the values that they had when `state.written` had this length."""
    while len(state.written) > begun:
        module, name, value = state.written.pop()
        if value is _MISSING:
            vars(module).pop(name, None)
        else:
            vars(module)[name] = value


def put_back(kept: Kept) -> None:
    """Give buffers, parameters and attributes the values that they had."""
    if kept.numbers is not None:
        kept.numbers.put_back()
    for attributes in kept.attributes:
        attributes.put_back()
    for hooks, known in kept.hooks:
        hooks.clear()
        hooks.update(known)
    kept.objects.restore()
    if kept.outside is not None:
        kept.outside.put_back()
    if kept.stream is not None:
        with hidden_from_modes():
            kept.stream[0].copy_(kept.stream[1])
    for parameter, flag in kept.flags:
        if parameter.requires_grad != flag:
            parameter.requires_grad_(flag)
    with torch.no_grad():
        for parameter, before in kept.parameters:
            if not torch.equal(parameter, before):
                parameter.copy_(before)
        for module, name, buffer, value in kept.buffers:
            module._buffers[name] = buffer
            # One that autograd may have kept is not touched for nothing.
            if buffer is None or value is None or buffer.is_meta:
                continue
            held, value = (physical(buffer), physical(value))  # a forward may have left its own in a buffer's place
            if not torch.equal(held, value):
                held.copy_(value)
