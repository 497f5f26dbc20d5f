# SPDX-License-Identifier: MIT
"""Python values of an array's modules, carried between the array and its shards.

A shard that is not the array has a copy of its modules. What the user sets in the array goes to the copies before the
next step, and what code sets in them, such as a counter, goes back after a step.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Sequence
from typing import Any

import torch

from .._C import Guards
from .._fuse import (
    Divergence,
    EditsInPlace,
    OwnAttributes,
    edition_of,
    hooks_in,
    hooks_so_far,
    loops,
    runs_of,
    take_from_models,
    take_hooks,
    take_settings,
)
from .._state import PLAIN, alike
from ..errors import InvalidArgument
from ..nn.array_module import ArrayModule
from .capture import NotPlain, PythonState, Recordings, guards, remembers
from .shard import Shard

__all__ = ["CarriedPython"]

_SETTING = "_last_setting"  # of a layer, another object after each
_SETTINGS = (*PLAIN, types.FunctionType, types.BuiltinFunctionType)
_NO_SETTINGS = (torch.Tensor, torch.nn.Module, dict)  # those of layers' own, which forwards set in other ways


class CarriedPython:
    """Python values that an array's modules have in common with those of its shards, in both directions. Where the one
    shard is the array nothing is carried: what was changed between two steps is told from what a step has changed."""

    def __init__(self, array: torch.nn.Module, shards: Sequence[Shard], captured: bool = True) -> None:
        self._array = array
        self.differing = ""  # an attribute that models that were alike have of their own since
        self.deal(shards, captured)

    def deal(self, shards: Sequence[Shard], captured: bool = True) -> None:
        """Carry values from and to these shards from now on; steps that are `captured` depend on them."""
        self._edition, self._runs = edition_of(self._array), runs_of(self._array)
        self._arrays: list[torch.nn.Module] = []
        self._state: PythonState | None = None  # to read the array settles it
        self._edits = EditsInPlace.count
        arrays = [shard.array for shard in shards if shard.array is not self._array]
        state = PythonState(self._array, arrays) if captured or arrays else None
        if arrays:
            self._divergence = Divergence(self._array, arrays)
            self._own = [OwnAttributes(self._array, s.array, s.start, s.length) for s in shards]
            self._look_at_hooks(arrays)
            self._look_at_settings(arrays)
        else:
            self.differing = ""
        self._arrays, self._state = arrays, state

    def outdated(self, recordings: Recordings) -> bool:
        """Return True if models were edited in place since the last call, and the shards keep more of theirs than
        tensors, or one of the `recordings` depends on the values of tensors."""
        before, self._edits = self._edits, EditsInPlace.count
        if self._edits == before:
            return False
        return recordings.depend_on_values or any(loops(one) or remembers(one) for one in self._arrays)

    def join(self, guards: Guards) -> bool:
        """Let `guards` guard all that `outdated` and `changed` look at; False in a pause."""
        if self._state is None:
            return True
        guards.attribute(EditsInPlace, "count")
        guards.item(vars(self), "differing")
        if self._arrays:
            guards.result(functools.partial(runs_of, self._array))
        return not self.differing and self._state.table.join(guards)

    def changed(self) -> bool:
        """Return True if a value of the array has changed since it was carried over."""
        if self._state is None:
            return False
        if self._arrays and runs_of(self._array) != self._runs:  # it was called by hand
            self._runs = runs_of(self._array)
            self.differing = "a value of each model's own" if take_from_models(self._array) else self.differing
        return bool(self.differing) or self._state.changed()

    def carry_over(self) -> tuple[Sequence[str], Any]:
        """Copy values that have changed in the array to the shards; return their names, and the state now.

        Raises:
            NotPlain: for values that cannot be copied; the array has to be divided again.
        """
        if self.differing or self._state is None:
            raise NotPlain(self.differing)
        names = self._state.carry_over()
        if self._arrays:
            self._divergence.keep()
        return names, self._state.state()

    def carry_back(self) -> None:
        """Copy plain values that the models' code has changed in the shards to the array, unless it was edited: the
        shards are of other models then, and what they had to give was taken before."""
        if not self._arrays:
            if self._state is not None:
                self._state.note()
        elif self._state is not None and edition_of(self._array) == self._edition:
            self._state.carry_back()
            self._take_hooks()
            self._take_settings()

    def _look_at_hooks(self, arrays: Sequence[torch.nn.Module]) -> None:
        self._hooks = hooks_so_far()
        each = (module for array in arrays[:1] for _, module in guards.modules_of(array))
        self._hooked = [(one, [dict(held) for held in hooks_in(one)]) for one in each if any(hooks_in(one))]

    def _take_hooks(self) -> None:
        """Give the array the hooks that a forward has registered in the first shard, with the flags that say so.

        Raises:
            InvalidArgument: a forward has removed a hook that an earlier step had: its handle is of one shard.
        """
        hooked = self._hooked
        if hooks_so_far() == self._hooks and all(hooks_in(one) == known for one, known in hooked):
            return
        self._look_at_hooks(self._arrays)  # first: to read the array settles it
        if any(was.keys() - now.keys() for one, known in hooked for was, now in zip(known, hooks_in(one), strict=True)):
            raise InvalidArgument(
                "the forward removes a hook that an earlier step had: remove it in the forward that registers it, "
                "register it once for good, or train by hand"
            )
        for array in self._arrays[:1]:
            each = zip(guards.modules_of(self._array), guards.modules_of(array), strict=True)
            pairs = [(mine, theirs) for (_, mine), (_, theirs) in each]
            copies: dict[int, Any] = {id(theirs): mine for mine, theirs in pairs}
            for mine, theirs in pairs:
                take_hooks(theirs, mine, copies=copies)

    def _look_at_settings(self, arrays: Sequence[torch.nn.Module]) -> None:
        """Note what a forward may set without methods of the modules themselves: flags, and attributes of layers."""
        parameters = [dict(one.named_parameters()) for one in (self._array, *arrays)]
        modules = [dict(guards.modules_of(one)) for one in (self._array, *arrays)]
        self._flags = [
            (name, flag, [one[name] for one in named], getattr(named[0][name], flag))
            for flag, named in (("requires_grad", parameters), ("training", modules))
            for name in named[0]
        ]
        layers = [name for name, module in modules[0].items() if isinstance(module, ArrayModule)]
        self._layers = [(name, [_noted(one[name]) for one in modules]) for name in layers]

    def _take_settings(self) -> None:
        """Set in the array what a forward has set in the shards: flags, and attributes of layers.

        Raises:
            InvalidArgument: what was set differs between shards, or is no plain value.
        """
        for name, flag, (own, *others), was in self._flags:
            values = [getattr(part, flag) for part in others]
            if any(value != was for value in values) and getattr(own, flag) == was:  # else the user's counts
                setattr(own, flag, _of_all(f"{flag} of {name}", values))
        try:
            self._take_from_layers()
        finally:
            self._layers = [(name, [_noted(one) for one, _ in each]) for name, each in self._layers]

    def _take_from_layers(self) -> None:
        for name, ((mine, known), *parts) in self._layers:
            if all(vars(part).get(_SETTING) is noted.get(_SETTING) for part, noted in parts):
                continue
            for key, value in list(vars(parts[0][0]).items()):
                if key[0] == "_" or isinstance(value, _NO_SETTINGS):
                    continue
                if all(alike(noted.get(key, noted), vars(part).get(key)) for part, noted in parts):
                    continue
                if key in vars(mine).get("extra_attributes", ()):  # the user's own: `Divergence` looks at these
                    continue
                values: list[Any] = [vars(part).get(key) for part, _ in parts]
                if key in getattr(mine, "per_model_lists", ()):
                    made: Any = [value for own in values for value in own]
                else:
                    made = _of_all(f"{key} of {name}", values)
                if vars(mine).get(key, known) is known.get(key, known):  # else the user has set it
                    setattr(mine, key, made)

    def settle(self, ran: bool) -> bool:
        """Copy all that the models' code has changed in the shards to the array; return False if the shards are not
        those of the array, which has been edited.

        Args:
            ran: their code ran since the last call; replays run none.
        """
        if not self._arrays or edition_of(self._array) != self._edition:
            return False
        self.carry_back()
        if ran:
            take_settings(self._array, self._arrays)
        for own in self._own:
            own.give_back()
        for own in self._own:
            own.withhold()
        if ran:
            self.differing = self._divergence.found() or self.differing
        return True


def _noted(layer: torch.nn.Module) -> tuple[torch.nn.Module, dict[str, Any]]:
    return layer, dict(vars(layer))


def _of_all(what: str, values: Sequence[Any]) -> Any:
    """Return the one value that a forward has set in all shards."""
    if all(isinstance(value, _SETTINGS) and alike(values[0], value) for value in values):
        return values[0]
    raise InvalidArgument(
        f"the forward sets {what}, to another value for some models than for others or to a "
        f"{type(values[0]).__name__}: parts of an array have one value for all models; keep it in an attribute of a "
        "module of yours, or train by hand"
    )
