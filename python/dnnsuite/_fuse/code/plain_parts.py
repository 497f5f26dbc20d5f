# SPDX-License-Identifier: MIT
"""Attributes and buffers that the plain models of a part share with the array, and changes in place of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from operator import is_
from typing import Any

import torch

from ...nn.array_module import ArrayModule
from ...nn.model_tensor import NotFusable, Refused
from ..hooks import hooks_in, take_hooks
from ..left_tensors import OPAQUE, give_attributes, may_change_in_place, parts_inside, picture
from ..rebound import holds_module
from ..single_model import parts_of
from .fused_attributes import NO_ATTRIBUTES, PLAIN_VALUES
from .stand_in import Differs, StandIn, StandInDict


class Part:
    """Module of the array, its counterparts in the plain models, and what it looked like when those were made."""

    def __init__(self, module: torch.nn.Module, owners: list[Any]) -> None:
        self.module, self.owners = module, owners
        self.children = list(module._modules.values())
        self.held = dict(vars(module))
        self.containers = Containers(self._own())
        self.in_place = self._in_place()
        self.hooks = [dict(held) for held in hooks_in(module)]
        self.taken = dict(vars(owners[0]))  # of model 0, after its last call

    def _own(self) -> dict[str, Any]:
        return {
            name: value for name, value in vars(self.module).items() if name not in NO_ATTRIBUTES and name != "_ranks"
        }

    def _in_place(self) -> HeldInPlace | None:
        if isinstance(self.module, ArrayModule):
            return None
        return HeldInPlace(self.module, [name for name in vars(self.module) if self.containers.holds(name)])

    def changed(self) -> list[str]:
        """List the attributes that were set since the last call."""
        now, known = vars(self.module), self.held
        inside = self.containers.changed()
        if all(map(is_, now.values(), known.values())) and list(now) == list(known):
            return inside  # at the speed of C: the same objects under the same names
        try:  # what stands in for a number while a step is followed is equal to it
            if list(map(type, now.values())) == list(map(type, known.values())) and now == known:
                return inside
        except Exception:  # tensors and arrays have no one answer
            pass
        self.containers, self.in_place = Containers(self._own()), self._in_place()
        names = [name for name, value in now.items() if known.get(name, self) is not value]
        counts, before = now.get("_fused_written", {}), known.get("_fused_written", {})
        names += [name for name in counts if counts[name] != before.get(name) and name in now]
        gone = [name for name in known if name not in now]
        self.held = dict(now)
        return [name for name in (*names, *gone, *inside) if not name.startswith("_fused_")]

    def follow(self) -> bool:
        """Set in the plain models what was set in the array; return False if they must be made anew."""
        if list(self.module._modules.values()) != self.children:
            return False
        if hooks_in(self.module) != self.hooks:
            self._follow_hooks()
        inside = [] if self.in_place is None else self.in_place.changed()
        if any(holds_module(vars(self.module)[name]) for name in inside):
            return False
        for index, owner in enumerate(self.owners if inside else ()):
            give_attributes(self.module, owner, inside, index)
        for name in self.changed():
            if name == "training":
                for owner in self.owners:
                    owner.training = self.module.training
            elif (
                name in NO_ATTRIBUTES
                or isinstance(self.module, ArrayModule)
                or isinstance(self.held.get(name), StandIn)
                or holds_module(self.held.get(name))
            ):
                return False
            else:
                self.taken = {own: value for own, value in self.taken.items() if own != name}  # no more
                for owner in self.owners:
                    owner.__dict__.pop(name, None)
                    if name in self.held:
                        value = self.held[name]
                        owner.__dict__[name] = copy.deepcopy(value) if self.containers.holds(name) else value
        return True

    def _follow_hooks(self) -> None:
        """Give the plain models the hooks that were registered in the array, beside those of their own code."""
        before, self.hooks = self.hooks, [dict(held) for held in hooks_in(self.module)]
        for owner in self.owners:
            for held, old, new in zip(hooks_in(owner), before, self.hooks, strict=True):
                for key in old.keys() - new.keys():
                    held.pop(key, None)
                held.update({key: hook for key, hook in new.items() if key not in old})

    def marks(self) -> Callable[[], None]:
        """Keep what is known of the last call; return a function that brings it back."""
        containers, held, taken, in_place = self.containers, dict(self.held), self.taken, self.in_place
        pictures = {} if in_place is None else in_place.known
        known, written = containers.known, vars(self.module).get("_fused_written")

        def put_back() -> None:
            self.containers, self.held, self.taken, self.in_place = containers, held, taken, in_place
            containers.known = known
            if in_place is not None:
                in_place.known = pictures
            if written is not None:  # a trial sets attributes as a user does
                vars(self.module)["_fused_written"] = written

        return put_back

    def take(self) -> None:
        """Give the module what all models' code has set alike, such as a counter: new models begin with it."""
        now = vars(self.owners[0])
        if hooks_in(self.owners[0]) != self.hooks:  # code that finds them in a new model registers no more
            take_hooks(self.owners[0], self.module, self.hooks)
            self.hooks = [dict(held) for held in hooks_in(self.module)]
        with suppress(Exception):  # tensors and arrays have no one answer
            if now == self.taken:  # at the speed of C
                return
        before, self.taken = self.taken, dict(now)
        if isinstance(self.module, ArrayModule):
            return
        fixed = NO_ATTRIBUTES | vars(self.module).get("_fused_withheld", frozenset())
        for name, value in now.items():
            if name in fixed or not isinstance(value, PLAIN_VALUES) or before.get(name, self) is value:
                continue
            if all(_agree(vars(owner).get(name, self), value) for owner in self.owners):
                self.module.__dict__[name] = self.held[name] = value


def _agree(a: Any, b: Any) -> bool:
    return type(a) is type(b) and bool(a == b)


class Buffers:
    """One buffer of the array and the views of it in the plain models."""

    def __init__(self, held: dict[str, Any], name: str, owners: list[dict[str, Any]]) -> None:
        self.held, self.name, self.owners = held, name, owners
        self.address = -1
        self.parts: list[Any] = [None] * len(owners)
        self.buffer: Any = self

    def lend(self) -> None:
        """Give the plain models views of the buffer, if it is another one than in the last call."""
        buffer = self.held[self.name]
        address = -1 if buffer is None else buffer.data_ptr()
        if buffer is self.buffer and address == self.address:
            return
        self.buffer, self.address = buffer, address
        # `.data` starts a version counter of its own: what a model writes is no change of another's.
        self.parts = [None if buffer is None else buffer.data[i] for i in range(len(self.owners))]
        for owner, part in zip(self.owners, self.parts, strict=True):
            owner[self.name] = part

    def take(self) -> None:
        """Copy tensors that the models' code has put in the buffer's place into the array."""
        now = [owner[self.name] for owner in self.owners]
        if all(new is old for new, old in zip(now, self.parts, strict=True)):
            self._refuse_another_size(now)
            return
        shapes = [None if value is None else list(value.shape) for value in now]
        for index, shape in enumerate(shapes):
            if shape != shapes[0]:
                raise NotFusable(
                    f"models 0 and {index} give their buffer {self.name} different shapes, {shapes[0]} and {shape}"
                )
        made = [value.detach() for value in now if value is not None]
        self.held[self.name] = torch.stack(made) if made else None
        self.buffer = self

    def _refuse_another_size(self, now: list[Any]) -> None:
        """Refuse views of the array's buffer that a forward has resized: they reach into the memory of other models."""
        size = None if self.buffer is None else self.buffer.shape[1:]
        for value in now:
            if value is not None and value.shape != size:
                raise Refused(
                    f"the forward gives its buffer {self.name} another size in place, {list(value.shape)} for "
                    f"{list(size or ())}, which lies beside those of other models in an array: call each model once "
                    f"before fuse, or assign a new tensor (self.{self.name} = ...); make the array anew"
                )


def paths_of(root: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield the modules of `parts_of`, each with its name."""
    wanted = {id(module) for module in parts_of(root)}
    for path, module in root.named_modules():
        if id(module) in wanted:
            yield path, module


_DEEP = 3  # containers in containers that are looked into


class Containers:
    """Containers of plain values among `attributes`, with a copy of their contents."""

    def __init__(self, attributes: dict[str, Any]) -> None:
        self._held = {name: value for name, value in attributes.items() if _is_plain_container(value, _DEEP)}
        self.known = copy.deepcopy(self._held)

    def holds(self, name: str) -> bool:
        """Return True if attribute `name` is a container of this kind."""
        return name in self._held

    def changed(self) -> list[str]:
        """List the names of the containers that have changed since the last call."""
        if not self._held:
            return []
        if self._held == self.known and _kinds(self._held) == _kinds(self.known):
            return []
        names = [name for name, value in self._held.items() if not _alike(value, self.known[name])]
        self.known = copy.deepcopy(self._held)
        return names


def _alike(a: Any, b: Any) -> bool:
    return bool(a == b) and _kinds(a) == _kinds(b)


def _kinds(value: Any) -> list[Any]:
    """List the types in a container: the stand-in for a number, used while a step is followed, equals the number."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [type(value), *map(_kinds, parts)]


def _is_plain_container(value: Any, depth: int) -> bool:
    if (type(value) not in (list, dict, set) and not isinstance(value, StandInDict)) or not depth:
        return False
    parts = [*value, *value.values()] if isinstance(value, dict) else value
    return all(isinstance(part, (*PLAIN_VALUES, Differs)) or _is_plain_container(part, depth - 1) for part in parts)


_DEEP_FUNCTIONS = 4  # containers and objects in one another that are looked into for functions
_FEW = 64  # elements of a container of functions


class HeldInPlace:
    """Attributes of a `module` that may change in place, `without` some, and pictures of them as they are now."""

    def __init__(self, module: torch.nn.Module, without: Collection[str] = ()) -> None:
        held = {name: value for name, value in vars(module).items() if name not in without}
        self._held = {
            name: value
            for name, value in held.items()
            if may_change_in_place(name, value) and not isinstance(value, StandIn)
        }
        self.known = self._pictures()

    def _pictures(self) -> dict[str, Any]:
        return {name: (picture(value), _functions(value, _DEEP_FUNCTIONS)) for name, value in self._held.items()}

    def changed(self) -> list[str]:
        """List the names of those that have changed since the last call."""
        if not self._held:
            return []
        before, self.known = self.known, self._pictures()
        return [name for name, now in self.known.items() if now != before[name]]


def _functions(value: Any, depth: int) -> Any:
    """List functions and modules in a container or an object, by identity."""
    if isinstance(value, OPAQUE):
        return id(value)
    if not depth or isinstance(value, torch.Tensor):
        return None
    inside = list(parts_inside(value))
    return [_functions(one, depth - 1) for one in inside] if len(inside) <= _FEW else None
