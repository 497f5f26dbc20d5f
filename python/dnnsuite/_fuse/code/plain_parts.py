# SPDX-License-Identifier: MIT
"""Attributes and buffers that the plain models of a part share with the array, and changes in place of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import torch

from ..._state import Watch
from ...errors import InvalidArgument
from ...nn.array_module import ArrayModule
from ...nn.model_tensor import NotFusable, Refused
from ..comparison import same
from ..hooks import counterparts, hooks_in, take_hooks
from ..left_tensors import (
    give_attributes,
    is_users_state,
    keep_settings,
    may_change_in_place,
    tensors_in,
    value_of_all,
    value_of_model,
)
from ..rebound import holds_module, tensors_held
from .own_values import NO_ATTRIBUTES, PLAIN_VALUES, is_fused
from .stand_in import StandIn


class Part:
    """Module of the array, its counterparts in the plain models, and what it looked like when those were made.

    Args:
        apart: its code runs in the models only, and never for all of them at once, which changes what the array has.
    """

    def __init__(self, module: torch.nn.Module, owners: list[Any], apart: bool = False) -> None:
        self.module, self.owners, self._apart = module, owners, apart and not isinstance(module, ArrayModule)
        self.children = list(module._modules.values())
        self.watch = Watch(vars(module), _in_a_layer if isinstance(module, ArrayModule) else may_change_in_place)
        self.hooks = [dict(held) for held in hooks_in(module)]
        self.taken = dict(vars(owners[0]))  # of model 0, after its last call
        self._left = Watch(vars(owners[0]), may_change_in_place)  # what its code has left alone so far
        self.copies: dict[int, Any] = {}  # by id of modules of model 0: those of the array
        self.outdated = False  # the plain models must be made anew
        self.replaced = set[str]()  # what they then have of the array
        self._given = [{name: self._as_given(one, name) for name in self.watch.known} for one in owners]
        self._settings = self._settings_now()
        self._arguments = self._arguments_now()

    def _as_given(self, owner: Any, name: str) -> Watch | None:
        """Watch what a plain model has of the array's; None for what it does not have like the array's."""
        held = vars(self.module)
        if not self._apart or not may_change_in_place(name, held.get(name)):
            return None
        mine = {name: vars(owner).get(name)}
        return Watch(mine, may_change_in_place) if same(held[name], mine[name]) else None

    def _has_own(self, name: str) -> bool:
        """Return True if the code of a model has given it another content of an attribute than it was given."""
        for owner, given in zip(self.owners, self._given, strict=True):
            watch = given.get(name)
            if watch is None:
                return True
            put_back = watch.marks()
            changed = watch.changed({name: vars(owner).get(name)})
            put_back()
            if changed:
                return True
        return False

    def _arguments_now(self) -> dict[str, Any]:
        """Return the array's settings of a layer, in lists where models have their own."""
        return {name: value_of_all(self.module, name) for name in self._names()} if self._settings else {}

    def _settings_now(self) -> list[tuple[Any, ...]]:
        """List for each model what decides on a layer of torch's beside its tensors; nothing for a user's module."""
        if not isinstance(self.module, ArrayModule):
            return []
        return [tuple(vars(one).get(name) for name in self._names()) for one in self.owners]

    def _names(self) -> list[str]:
        return ["training", *getattr(type(self.owners[0]), "__constants__", ())]

    def acted(self) -> bool:
        """Return True if the code of model 0 has set an attribute, or changed one in place, since the last look: the
        module does not have it."""
        if not is_fused(self.module) or self._apart:
            return False
        before = self._left.known
        if self._left.changed(vars(self.owners[0])):
            return True
        now = self._left.known
        names = () if now is before else before.keys() | now.keys()
        return any(
            (name in before) != (name in now)
            or (isinstance(now[name], PLAIN_VALUES) and not _agree(before[name], now[name]))
            for name in names
            if name not in NO_ATTRIBUTES
        )

    def settings_set(self) -> list[tuple[Any, ...]]:
        """List what decides on a layer, for each model, if the models' code has set some of it; else nothing."""
        now = self._settings_now()
        return [] if now == self._settings else now

    def set_by_code(self) -> dict[str, list[Any]]:
        """Collect what the models' code has set in a layer, one value of each model, unless the user has set it since;
        of torch's own layers, which have what all models have alike, only what differs."""
        if is_fused(self.module):
            return {}
        if not isinstance(self.module, ArrayModule):
            names = [name for name, value in vars(self.owners[0]).items() if isinstance(value, PLAIN_VALUES)]
            values = {name: [vars(one).get(name) for one in self.owners] for name in names if name not in NO_ATTRIBUTES}
            return {name: own for name, own in values.items() if not all(_agree(own[0], one) for one in own)}
        now, arguments = self._settings_now(), self._arguments_now()
        found = zip(self._names(), zip(*self._settings, strict=True), zip(*now, strict=True), strict=True)
        return {
            name: list(own)
            for name, before, own in found
            if own != before and arguments.get(name) == self._arguments.get(name)
        }

    def give_settings(self) -> None:
        """Give a layer of the array what the models' code has set in theirs."""
        found = self.set_by_code()
        if found:
            keep_settings(self.module, found)

    def changed(self) -> list[str]:
        """List the attributes that were set, or changed in place, since the last call."""
        known = self.watch.known
        inside = self.watch.changed(vars(self.module))
        now = self.watch.known
        if now is known:
            return inside
        counts, before = now.get("_fused_written", {}), known.get("_fused_written", {})
        names = dict.fromkeys(inside)
        names |= {name: None for name, value in now.items() if not _agree(known.get(name, self), value)}
        names |= {name: None for name in counts if counts[name] != before.get(name) and name in now}
        names |= {name: None for name in known if name not in now}
        return [name for name in names if not name.startswith("_fused_")]

    def follow(self) -> bool:
        """Set in the plain models what was set in the array; return False if they must be made anew."""
        self.outdated = not self._follow() or self.outdated
        return not self.outdated

    def _follow(self) -> bool:
        can_follow = list(self.module._modules.values()) == self.children
        if hooks_in(self.module) != self.hooks:
            self._follow_hooks()
        held, before, put_back = vars(self.module), self.watch.known, self.watch.marks()
        for name in self.changed():
            value = held.get(name)
            in_place = name in before and value is before[name] and may_change_in_place(name, value)
            if in_place and self._apart and self._has_own(name):
                put_back()
                raise InvalidArgument(
                    f"{name} of the array was changed in place, but the code of each model has changed its own: assign "
                    f"one for all (array.{name} = ...), or keep what is changed between steps in another attribute"
                )
            if name == "training":
                for owner in self.owners:
                    mine = (
                        owner.modules() if isinstance(self.module, ArrayModule) else [owner]
                    )  # whose parts are no `Part`s
                    for one in mine:
                        one.training = self.module.training
            elif (
                name in NO_ATTRIBUTES
                or isinstance(self.module, ArrayModule)
                or isinstance(value, StandIn)
                or holds_module(value)
                or any(type(one) is torch.nn.Parameter for one, _ in tensors_held(value))
            ):
                self.replaced.add(name)
                can_follow = False
            else:
                self.taken = {own: value for own, value in self.taken.items() if own != name}  # no more
                for index, owner in enumerate(self.owners):
                    owner.__dict__.pop(name, None)
                    if name in held:
                        give_attributes(self.module, owner, [name], index)
                    self._given[index][name] = self._as_given(owner, name)
                self._left.changed(vars(self.owners[0]))
        return can_follow

    def _follow_hooks(self) -> None:
        """Give the plain models the hooks that were registered in the array, beside those of their own code."""
        before, self.hooks = self.hooks, [dict(held) for held in hooks_in(self.module)]
        for owner in self.owners:
            for held, old, new in zip(hooks_in(owner), before, self.hooks, strict=True):
                for key in old.keys() - new.keys():
                    held.pop(key, None)
                held.update({key: hook for key, hook in new.items() if key not in old})

    def begin_as(self, before: Part, memos: Sequence[dict[int, Any]]) -> None:
        """Begin with what code has left in models that these take the place of, unless it was set in the array since;
        `memos`, one of each model, have the copies of what is in them."""
        for owner, old, memo in zip(self.owners, before.owners, memos, strict=True):
            kept = {n: v for n, v in vars(old).items() if is_users_state(n, v) and n not in before.replaced}
            vars(owner).update({name: value_of_model(value, 0, memo) for name, value in kept.items()})
        self.taken = dict(vars(self.owners[0]))
        self._left.changed(self.taken)

    def marks(self) -> Callable[[], None]:
        """Keep what is known of the last call; return a function that brings it back."""
        watch, known, taken = self.watch, self.watch.marks(), self.taken
        given = [dict(one) for one in self._given]
        written = vars(self.module).get("_fused_written")

        def put_back() -> None:
            self.watch, self.taken, self._given = watch, taken, given
            known()
            if written is not None:  # a trial sets attributes as a user does
                vars(self.module)["_fused_written"] = written

        return put_back

    def take(self) -> None:
        """Give the module what all models' code has set alike, such as a counter: new models begin with it."""
        now = vars(self.owners[0])
        if list(map(list, hooks_in(self.owners[0]))) != list(map(list, self.hooks)):
            # Code that finds them in a new model registers no more.
            take_hooks(self.owners[0], self.module, self.hooks, self.copies)
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
                self.module.__dict__[name] = value
                self.watch.known = {**self.watch.known, name: value}

    def show(self) -> set[str]:
        """Give the module what all models' code has left alike in containers and objects, for those who read it there;
        return the names of those in which the models differ."""
        held, differing = vars(self.module), set[str]()
        for name in [
            n for n, value in held.items() if not isinstance(value, StandIn) and may_change_in_place(n, value)
        ]:
            if not self._apart or self.watch.known.get(name, self) is not held[name] or not self._has_own(name):
                continue
            values = [vars(owner).get(name, self) for owner in self.owners]
            if any(True for value in values for _ in tensors_in(value)) or not all(same(values[0], v) for v in values):
                differing.add(name)
            elif not same(held[name], values[0]):
                held[name] = value_of_model(values[0], 0, counterparts(self.owners[0], self.module))
                for owner, given in zip(self.owners, self._given, strict=True):
                    given[name] = self._as_given(owner, name)
        self.watch.changed(held)
        return differing

    def hide(self, names: Iterable[str]) -> None:
        """Take attributes away from the module in which each model has its own, and follow that no more."""
        for name in names:
            vars(self.module).pop(name, None)
        self.watch.changed(vars(self.module))


def _agree(a: Any, b: Any) -> bool:
    return a is b or (isinstance(b, PLAIN_VALUES) and type(a) is type(b) and bool(a == b))


def _in_a_layer(name: str, value: Any) -> bool:
    """Return True for a container of a layer's that holds no tensors."""
    return (
        name not in (*NO_ATTRIBUTES, "_ranks")
        and type(value) in (list, dict, set)
        and not any(True for _ in tensors_in(value))
    )


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
                    f"before fuse, or assign a new tensor (self.{self.name} = ...); then make a new array"
                )
