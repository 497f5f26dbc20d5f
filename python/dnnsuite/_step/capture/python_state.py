# SPDX-License-Identifier: MIT
"""Python state of an array's modules: attributes, and what their containers and objects hold.

Shards run copies of the modules. A user's change of the array between two steps goes to the copies; a change that a
forward makes in them, such as a counter, goes back. Both are found by comparing dictionaries, which runs in C.
"""

from __future__ import annotations

import contextlib
import copy
import enum
import functools
import logging
import types
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import torch

from ..._C import Guards
from ..._fuse import holds_module, joined, models_apart, names_of_own, stands_in
from ..._state import PLAIN, Walk, alike, hides_state, holds_lookalikes, holds_others, is_plain, slots_of
from ...nn.array_module import ArrayModule
from .guards import GuardTable, is_bare_or_named, is_state, modules_of
from .stand_ins import is_number
from .value_readers import HeldObjects

_PLAIN = (*PLAIN, torch.Size)
_PLAIN_TYPES = frozenset(_PLAIN)  # looked up in a fraction of the time of `isinstance`
_NO_STATE = (torch.nn.Module, torch.Tensor, type, types.ModuleType, types.BuiltinFunctionType)
#: Objects whose attributes are not all state: a logger notes there what it was asked, and keeps its level by others'.
_LEAVES = (logging.Logger,)
_FUNCTIONS = (types.FunctionType, types.MethodType)
_WRITTEN = "_fused_written"  # how often each attribute of a user's module was set from outside
_MANY = 20_000  # objects that are looked into; of more `unseen.py` tells
Path = tuple[Any, ...]


class Holder:
    """Dictionary or list with Python state, at `path` from the modules of an array, with a copy of its contents."""

    def __init__(self, path: Path, held: Any) -> None:
        self.path, self.held = path, held
        self.keep()

    def keep(self) -> None:
        """Copy its contents."""
        self.known = copy.copy(self.held)

    def note(self, keys: Iterable[Any]) -> None:
        """Copy its contents under these keys."""
        if isinstance(self.held, list):
            self.keep()
            return
        for key in (*keys, _WRITTEN):
            self.known.pop(key, None)
            if key in self.held:
                self.known[key] = self.held[key]

    def written(self) -> dict[Any, Any]:
        """Collect values that were set from outside, unchanged ones too: a forward of a copy may have left another
        value there."""
        if len(self.path) > 1:
            return {}
        now, before = self.held.get(_WRITTEN, {}), self.known.get(_WRITTEN, {})
        names = [name for name, count in now.items() if count != before.get(name) and name in self.held]
        return {name: self.held[name] for name in names if is_state(name, self.held[name])}

    def changed(self) -> bool:
        """Return True if it may have changed since the copy."""
        if _differ(self.held, self.known):
            return True
        return holds_lookalikes(self.known) and holds_others(self.held, self.known)

    def changes(self) -> dict[Any, Any]:
        """Collect new and changed values by attribute, key or index; `_GONE` for those removed."""
        now, before = _items(self.held), _items(self.known)
        found = {key: value for key, value in now.items() if key not in before or not alike(value, before[key])}
        found |= {key: _GONE for key in before if key not in now}
        return {key: value for key, value in found.items() if len(self.path) > 1 or is_state(key, value)}


def _differ(held: Any, known: Any) -> bool:
    try:
        return bool(held != known)
    except Exception:  # tensors, arrays: compared one by one
        return True


_GONE = object()


def _items(held: Any) -> dict[Any, Any]:
    return held if isinstance(held, dict) else dict(enumerate(held))


def _held_in(modules: Sequence[torch.nn.Module]) -> Iterator[tuple[Path, Any]]:
    """Yield path and content of the dictionary of each module, and of the containers and objects in it, each once."""
    seen: set[int] = set()
    for number, module in enumerate(modules):
        yield (number,), vars(module)
        for name, value in vars(module).items():
            if type(value) not in _PLAIN_TYPES and is_state(name, value):
                yield from _inside(value, (number, name), seen)


def _is_code(value: Any) -> bool:
    return callable(value) and not isinstance(value, (type, enum.Enum, torch.nn.Module, torch.Tensor))


def _state_in(found: Iterable[tuple[Path, Any]]) -> Iterator[tuple[Path, Any, Any]]:
    """Yield path, key and value of all that is state in held objects, with their paths."""
    for path, held in found:
        for key, value in _items(held).items():
            if len(path) > 1 or is_state(key, value):
                yield path, key, value


def python_values(
    array: torch.nn.Module, without: Collection[tuple[Path, Any]] = (), after: bool = False
) -> dict[str, Any]:
    """Collect the plain Python values in the modules of an array, and in containers and objects of theirs, by name.

    Models that run one by one have modules, and values, of their own.

    Args:
        without: (path, key) of values that are left out, also in models that run one by one.
        after: a step has run, so that those models have the array's values, unless they have set others.
    """
    own = list(modules_of(array))
    apart = [(f"{name}.{path}", part, module) for name, module in own for path, part in models_apart(module)]
    named = own + [(name, part) for name, part, _ in apart]
    held = [module for _, module in own]
    found: dict[str, Any] = {}
    for path, key, value in _state_in(_held_in([module for _, module in named])):
        plain = type(value) in _PLAIN_TYPES or is_plain(value)
        if (not plain and not is_leaf(value)) or (without and (path, key) in without):
            continue
        if without and path[0] >= len(own):
            name, _, module = apart[path[0] - len(own)]
            if _is_as_in(module, name, held, (path, key), value if after else _GONE, without):
                continue
        where = ".".join([named[path[0]][0], *map(str, path[1:]), str(key)]).lstrip(".")
        found[where] = value if plain else Walk(value).snapshot
    return found


def _is_as_in(
    module: torch.nn.Module, name: str, held: list[torch.nn.Module], place: Any, value: Any, without: Any
) -> bool:
    """Return True for a value of a model that runs one by one in place of `module` if the array, which holds the
    modules `held`, has it at one of the places `without`; `_GONE` stands for any value."""
    (_, *inner), key = place
    part = vars(module).get("_root", module).get_submodule(name.partition("model ")[2].partition(".")[2])
    path = (next(number for number, one in enumerate(held) if one is part), *inner)
    return (path, key) in without and (value is _GONE or alike(_at(held, path)[key], value))


def python_numbers(array: torch.nn.Module) -> dict[tuple[Path, Any], Any]:
    """Collect the numbers among the Python values of an array's modules, by (path, key)."""
    return {(path, key): value for path, key, value in _state_in(_held_in(all_modules(array))) if is_number(value)}


def _inside(value: Any, path: Path, seen: set[int]) -> Iterator[tuple[Path, Any]]:
    held = _held_by(value)
    if held is None or id(value) in seen or len(seen) > _MANY:
        return
    seen.add(id(value))
    yield path, held
    for key, part in _items(held).items():
        if type(part) not in _PLAIN_TYPES:
            yield from _inside(part, (*path, key), seen)


def _held_by(value: Any) -> Any:
    """Return the dictionary or list in which `value` keeps its state; None if it has none that can be seen."""
    if type(value) in _PLAIN_TYPES:
        return None
    if isinstance(value, (dict, list)):
        return value
    if isinstance(value, (*_NO_STATE, *_FUNCTIONS, *_LEAVES)) or not hasattr(value, "__dict__"):
        return None
    return vars(value)


def is_leaf(value: Any) -> bool:
    """Return True for an object that keeps its state elsewhere than in attributes, a list or a dictionary."""
    if isinstance(value, _NO_STATE):
        return False
    kind: Any = type(value)
    held = _held_by(value)
    if held is value:
        return bool(getattr(value, "__dict__", None))
    return held is None or bool(slots_of(kind)) or hides_state(kind)


def _at(modules: Sequence[torch.nn.Module], path: Path) -> Any:
    """Find the dictionary or list at a path."""
    held: Any = vars(modules[path[0]])
    for key in path[1:]:
        held = _held_by(held[key])
    return held


def value_at(modules: Sequence[torch.nn.Module], path: Path, key: Any) -> Any:
    """Return what the modules of an array hold at a path under a key; None where there is nothing."""
    try:
        return _at(modules, path)[key]
    except (KeyError, IndexError, TypeError):
        return None


def _copied(value: Any) -> Any:
    """Copy a value that all models can have alike; raise `NotPlain` for others."""
    if isinstance(value, types.FunctionType) and holds_module(value):
        raise NotPlain  # each shard's holds its own
    if value is _GONE or isinstance(value, (*_PLAIN, types.FunctionType, type, enum.Enum)):
        return value
    if isinstance(value, tuple) and is_bare_or_named(type(value)):
        return getattr(type(value), "_make", tuple)(map(_copied, value))
    if type(value) in (list, set, frozenset):
        return type(value)(_copied(part) for part in value)
    if type(value) is dict:
        return {key: _copied(part) for key, part in value.items()}
    raise NotPlain


def _is_plain(value: Any) -> bool:
    try:
        _copied(value)
    except NotPlain:
        return False
    return True


class NotPlain(Exception):
    """Raised for a value that may differ between the models, with its name where that is known; the shards are then
    made again."""


def put_values(modules: Sequence[torch.nn.Module], path: Path, changes: dict[Any, Any]) -> None:
    """Make changes in modules of an array, at `path`; a module is notified, because it may have copies of its own."""
    module = modules[path[0]]
    if len(path) == 1:
        for name, value in changes.items():
            if value is not _GONE:
                setattr(module, name, _copied(value))
            elif name in vars(module):
                delattr(module, name)
        return
    try:
        _put_inside(_at(modules, path), changes)
    except (KeyError, IndexError, TypeError):
        raise NotPlain from None
    setattr(module, path[1], vars(module)[path[1]])


def _put_inside(held: Any, changes: dict[Any, Any]) -> None:
    for key, value in changes.items():
        if value is _GONE:
            continue
        if isinstance(held, list) and key >= len(held):
            held.append(_copied(value))
        else:
            held[key] = _copied(value)
    gone = [key for key, value in changes.items() if value is _GONE]
    if isinstance(held, list):
        del held[min(gone, default=len(held)) :]
    else:
        for key in gone:
            held.pop(key, None)


class _Forms:
    """Classes of objects, and orders of items, which dictionaries do not compare."""

    def __init__(self, values: Sequence[Any]) -> None:
        self._objects = [value for value in values if not isinstance(value, (dict, list))]
        self._dictionaries = [value for value in values if isinstance(value, dict)]
        self.any = bool(values)
        self.keep()

    def keep(self) -> None:
        self._before = self._now()

    def _now(self) -> Any:
        kinds = list(map(type, self._objects))
        return [*kinds, *(kind.__mro__ for kind in kinds)], list(map(list, self._dictionaries))

    def changed(self) -> bool:
        """Return True if there is another class, or another order of items that were there before."""
        (classes, orders), (known, before) = self._now(), self._before
        return classes != known or (orders != before and any(map(_reordered, orders, before)))


def _reordered(now: list[Any], before: list[Any]) -> bool:
    left = set(now)
    stayed = [key for key in before if key in left]
    return now[: len(stayed)] != stayed


class PythonState:
    """Python state of an array and of the copies of its modules that shards run."""

    def __init__(self, array: torch.nn.Module, copies: Sequence[torch.nn.Module]) -> None:
        self._modules = all_modules(array)
        self._layers = {number for number, module in enumerate(self._modules) if isinstance(module, ArrayModule)}
        self._copies = [all_modules(one) for one in copies]
        self._now: dict[tuple[Path, Any], Any] = {}
        self.table = GuardTable()
        self._look()

    def _look(self, known: Sequence[Holder] = ()) -> None:
        """Find all that holds state; what is `known` is compared with what it held then."""
        kept = {(holder.path, id(holder.held)): holder for holder in known}
        found = [Holder(path, held) for path, held in _held_in(self._modules)]
        self._holders = [kept.get((one.path, id(one.held)), one) for one in found]
        kinds: list[Any] = list(map(type, self._modules))
        changing = {number for number, kind in enumerate(kinds) if _has_users_code(kind)}
        first = self._copies[0] if self._copies else []
        self._changing = [Holder(path, held) for path, held in _held_in(first) if path[0] in changing]
        leaves: list[tuple[Any, list[Any]]] = []  # each with its counterparts in the copies
        others: list[Any] = []
        for path, key, value in _state_in((holder.path, holder.held) for holder in self._holders):
            if isinstance(value, torch.Tensor) or (not isinstance(value, _PLAIN) and is_leaf(value)):
                leaves.append((value, [value_at(modules, path, key) for modules in self._copies]))
            elif not isinstance(value, (*_PLAIN, *_NO_STATE)):
                others.append(value)
        self._objects, self._any_objects, self._forms = HeldObjects(leaves), bool(leaves), _Forms(others)

    def changed(self) -> bool:
        """Return True if the array may have changed since the last comparison."""
        if self.table.hold():
            return False
        fresh = self.table.renewed(self._guard)
        if any(map(Holder.changed, self._holders)) or self._objects.changed() or self._forms.changed():
            return True
        self.table.keep(fresh)
        return False

    def _guard(self, guards: Guards) -> None:
        """Guard all that `changed` looks at."""
        for holder in self._holders:
            guards.container(holder.held, holder.known)
        if self._any_objects:
            guards.result(self._objects.changed)
        if self._forms.any:
            guards.result(self._forms.changed)

    def carry_over(self) -> list[str]:
        """Copy changes of the array to the copies; return their names.

        Raises:
            NotPlain: a value cannot be copied; the copies must be made again.
        """
        if self._objects.other_objects() or self._forms.changed():
            raise NotPlain
        found = self._found(self._holders)
        for path, changes in found.items():
            if path[0] in self._layers:
                raise NotPlain  # a layer keeps a value for each model
            if any(map(_is_code, changes.values())):
                raise NotPlain  # what it reads has to be found
        self._objects.carry_over()
        for path, changes in found.items():
            self._now.update({(path, key): v if is_number(v) else repr(v) for key, v in changes.items()})
            for modules in self._copies:
                put_values(modules, path, changes)
        if any(not isinstance(value, _PLAIN) for own in found.values() for value in own.values()):
            self._look()  # containers may be new
        for holder in (*self._holders, *self._changing):
            holder.keep()
        self._forms.keep()
        return [".".join(map(str, (*path[1:], key))) for path, changes in found.items() for key in changes]

    def note(self) -> None:
        """Take what a step has changed in the array itself for known."""
        if self.table.hold():
            return
        late = [holder for holder in self._holders if holder.changed()]
        plain = all(isinstance(value, _PLAIN) for holder in late for value in holder.changes().values())
        if not plain or self._objects.changed() or self._forms.changed():
            self._look()
            return
        for holder in late:
            holder.keep()

    def carry_back(self) -> None:
        """Copy changes that the forward made in the first copy to the array, except caches, and except values that the
        user has set meanwhile."""
        late = [holder for holder in self._changing if holder.changed()]
        if not late:
            return
        known = {holder.path: holder for holder in self._holders}
        others = False  # than those that were looked at: a list in the place of another
        for holder in late:
            mine = known.get(holder.path)
            users = mine.changes() if mine is not None and mine.changed() else {}
            changes = holder.changes()
            others = others or not all(isinstance(value, _PLAIN) for value in changes.values())
            plain = {
                key: value
                for key, value in changes.items()
                if key not in users and not self._is_own(holder.path, key) and _is_plain(value)
            }
            holder.keep()
            with contextlib.suppress(NotPlain):
                if plain:  # else its attribute is not set: models may have their own
                    put_values(self._modules, holder.path, plain)
            tensors = self._tensors_beside(holder) if plain and len(holder.path) == 1 else {}
            vars(self._modules[holder.path[0]]).update(tensors)
            if mine is not None:
                mine.note([*plain, *tensors])
            if holder.path[:1] in known:  # its module was told of what is deep inside
                known[holder.path[:1]].note(())
        if others:
            self._look(self._holders)

    def _tensors_beside(self, holder: Holder) -> dict[str, torch.Tensor]:
        """Collect tensors of all models that a forward has left beside the values in a module, as a cache with its
        length."""
        names = [n for n, v in holder.held.items() if isinstance(v, torch.Tensor) and not n.startswith("_fused_")]
        found = {n: joined([vars(modules[holder.path[0]]).get(n) for modules in self._copies]) for n in names}
        return {name: value for name, value in found.items() if value is not None}

    def _is_own(self, path: Path, key: Any) -> bool:
        """Return True for what each model has its own of: a copy of one model has taken its own out of the array."""
        name = path[1] if len(path) > 1 else key
        own = name in names_of_own(self._modules[path[0]])
        return own and not stands_in(vars(self._copies[0][path[0]]).get(name))

    def _found(self, holders: Sequence[Holder]) -> dict[Path, dict[Any, Any]]:
        changes = {holder.path: holder.written() | holder.changes() for holder in holders if holder.changed()}
        for path, own in changes.items():
            for key, value in own.items():
                if not _is_plain(value):
                    raise NotPlain(f"{'.'.join(map(str, (*path[1:], key)))}, a {type(value).__name__},")
        return {path: {key: _copied(v) for key, v in own.items()} for path, own in changes.items() if own}

    def state(self) -> dict[tuple[Path, Any], Any]:
        """Describe all changes since the copies were made, by (path, key): numbers as they are, other values as
        text."""
        return dict(self._now)


def all_modules(array: torch.nn.Module) -> list[torch.nn.Module]:
    return [module for _, module in modules_of(array)]


@functools.lru_cache(maxsize=1024)
def _has_users_code(kind: Any) -> bool:
    """Return True if a module's class `kind` has methods of a user's, which may change Python state."""
    return any(
        isinstance(function, types.FunctionType)
        for base in kind.__mro__
        if not base.__module__.startswith(("torch.nn.modules", "dnnsuite.nn", "dnnsuite._fuse", "builtins"))
        for name, function in vars(base).items()
        if name not in ("__init__", "__setattr__", "__setstate__")
    )
