# SPDX-License-Identifier: MIT
"""Contents of all that values hold, kept to be restored: what a try has changed in place is as it was before."""

from __future__ import annotations

import collections
import contextvars
import copy
import functools
import random
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from .kinds import CONTENTS, is_at_rest, is_opaque, stands_by_identity
from .walk import Unknown, bare_dictionary, dictionary_of, hides_state, is_plain, slots_in
from .watch import pickled

_MANY = 20_000  # objects that are looked into
_EMPTY = object()  # in the place of what is not there
_NO_CONTENT = (
    *(types.BuiltinFunctionType, types.CodeType, type, types.ModuleType, torch.Size, np.generic),
    *(torch.dtype, torch.device, torch.Tensor, torch.nn.Module),
)


class Kept:
    """Content of one holder: `read` gives it, `write` sets another; `parts` are looked into.

    `place` is the dictionary or list of which it is all, if it is that of one, in the order of its items.
    """

    __slots__ = ("_before", "_read", "_write", "parts", "place")

    def __init__(
        self,
        read: Callable[[], Any],
        write: Callable[[Any], object],
        parts: Callable[[Any], Iterable[Any]] = iter,
        place: Any = None,
    ) -> None:
        self._read, self._write = read, write
        self.place = place if type(place) in (dict, list) else None
        self._before = read()
        self.parts = list(parts(self._before))

    def changed(self) -> bool:
        """Return True if there is another content now; parts count by their identity."""
        return _differ(self._read(), self._before)

    def restore(self) -> None:
        """Restore the content, if there is another."""
        if self.changed():
            self._write(self._before)


def _differ(now: Any, before: Any) -> bool:
    if type(now) is list and type(before) is list:
        return len(now) != len(before) or any(a is not b for a, b in zip(now, before, strict=True))
    return now is not before and bool(now != before)


def _nothing(content: Any) -> Iterable[Any]:
    return ()


Savers = Mapping[type, Callable[[Any], Iterable[Kept]]]


class Contents:
    """Contents of all that can be reached from `values`.

    Args:
        savers: functions that give the `Kept` of a value, by kinds of objects that others know.
        skip: tells what is left alone.
        strict: refuse what cannot be restored, instead of leaving it as it is.

    Raises:
        Unknown: with `strict`, for a value that cannot be restored.
    """

    def __init__(
        self, values: Iterable[Any], savers: Savers, skip: Callable[[Any], bool], strict: bool = False
    ) -> None:
        self._kept: list[Kept] = []
        self._seen: dict[int, Any] = {}
        self._savers, self._skip, self._strict = savers, skip, strict
        waiting = list(values)
        while waiting:
            value = waiting.pop()
            if is_plain(value) or id(value) in self._seen:
                continue
            if len(self._seen) >= _MANY:
                if strict:
                    raise Unknown(f"more than {_MANY} objects", "the values that the code can reach")
                return
            self._seen[id(value)] = value
            for kept in self._of(value):
                self._kept.append(kept)
                waiting += kept.parts

    def _of(self, value: Any) -> Iterable[Kept]:
        kind: Any = type(value)
        own = next((self._savers[base] for base in kind.__mro__ if base in self._savers), None)
        if own is not None:
            return own(value)
        if self._is_left_alone(value):
            return ()
        found = next((_SAVERS[base](value) for base in kind.__mro__ if base in _SAVERS), None)
        if found is None and hides_state(kind) and not stands_by_identity(kind):
            found = _by_its_class(value)
        if found is None and self._strict and hides_state(kind) and not stands_by_identity(kind):
            raise Unknown(f"a {kind.__name__}, which cannot be set back", "the values that the code can reach")
        return [*(found or ()), *_attributes(value)]

    def _is_left_alone(self, value: Any) -> bool:
        rests = isinstance(value, types.GeneratorType) and is_at_rest(value)
        return rests or isinstance(value, _NO_CONTENT) or is_opaque(type(value)) or self._skip(value)

    def __iter__(self) -> Iterator[Kept]:
        return iter(self._kept)

    def add(self, kept: Iterable[Kept]) -> None:
        """Add what the caller keeps itself."""
        self._kept += kept

    def looked_into(self) -> Iterable[Any]:
        """List the objects and containers that were looked into."""
        return (one for one in self._seen.values() if not self._is_left_alone(one))

    def changed(self) -> bool:
        """Return True if some contents are other ones."""
        return any(kept.changed() for kept in self._kept)

    def restore(self) -> None:
        """Restore all contents."""
        for kept in reversed(self._kept):
            kept.restore()


def keep_contents(value: Any) -> Iterable[Kept]:
    """Keep what a list, dictionary, set or the like holds; nothing of another kind of value."""
    return next((_SAVERS[base](value) for base in type(value).__mro__ if base in _SAVERS), ())


def _attributes(value: Any) -> Iterable[Kept]:
    held = dictionary_of(value)
    if held is not None:
        yield keep_names(held)
    kind: Any = type(value)
    if slots := slots_in(kind):
        yield _slots(slots, value)


def keep_names(held: dict[str, Any], names: Callable[[str, Any], bool] = lambda name, value: True) -> Kept:
    """Keep the items of a namespace that `names(name, value)` chooses."""

    def read() -> list[Any]:
        return [part for item in held.items() if names(*item) for part in item]

    def write(content: list[Any]) -> None:
        before = dict(zip(content[::2], content[1::2], strict=True))
        for name in [name for name, value in held.items() if name not in before and names(name, value)]:
            del held[name]
        held.update(before)

    return Kept(read, write, lambda content: content[1::2], held)


def keep_reference(read: Callable[[], Any], write: Callable[[Any], object]) -> Kept:
    """Keep which object `read` returns, which counts by its identity."""
    return Kept(lambda: [read()], lambda content: write(content[0]))


def _keep_each(keys: Iterable[Any], read: Callable[[Any], Any], write: Callable[[Any, Any], object]) -> Kept:
    """Keep what stands under each key, or that nothing does."""
    keys = list(keys)

    def write_all(content: list[Any]) -> None:
        for key, now, before in zip(keys, map(read, keys), content, strict=True):
            if now is not before:
                write(key, before)

    return Kept(lambda: list(map(read, keys)), write_all)


def keep_bindings(space: Any, names: Iterable[str]) -> Kept:
    """Keep what stands under names, or that nothing does: in a dictionary, a class or a module."""
    held: Any = space if isinstance(space, dict) else vars(space)

    def write(name: str, before: Any) -> None:
        if isinstance(space, dict):
            space.pop(name, None) if before is _EMPTY else space.update({name: before})
        elif before is _EMPTY:
            delattr(space, name)
        else:
            setattr(space, name, before)

    return _keep_each(names, lambda name: held.get(name, _EMPTY), write)


def _slots(slots: tuple[Any, ...], value: Any) -> Kept:
    def write(slot: Any, before: Any) -> None:
        slot.__delete__(value) if before is _EMPTY else slot.__set__(value, before)

    return _keep_each(slots, lambda slot: getattr(value, slot.__name__, _EMPTY), write)


def keep_cell(cell: types.CellType) -> Kept:
    """Keep a variable that functions close over."""

    def read() -> Any:
        try:
            return cell.cell_contents
        except ValueError:  # not assigned yet
            return _EMPTY

    def write(content: Any) -> None:
        if content is _EMPTY:
            del cell.cell_contents
        else:
            cell.cell_contents = content

    return keep_reference(read, write)


def _items(value: Any) -> list[Any]:
    return [part for item in bare_dictionary(value).items(value) for part in item]


def _set_items(value: Any, content: list[Any]) -> None:
    kind = bare_dictionary(value)
    kind.clear(value)
    kind.update(value, zip(content[::2], content[1::2], strict=True))


def _elements(value: Any) -> list[Any]:
    return list((list if isinstance(value, list) else collections.deque).__iter__(value))


def _set_elements(value: Any, content: list[Any]) -> None:
    kind: Any = list if isinstance(value, list) else collections.deque
    kind.clear(value)
    kind.extend(value, content)


def _set_members(value: Any, content: frozenset[Any]) -> None:
    set.clear(value)
    set.update(value, content)


def _array(value: Any) -> Iterable[Kept]:
    if not value.flags.writeable:
        return
    before = value.copy()
    if value.dtype.hasobject:
        yield Kept(lambda: list(value.flat), lambda content: np.copyto(value, before))
    else:
        yield Kept(value.tobytes, lambda content: np.copyto(value, before), _nothing)


def _variable(value: contextvars.ContextVar[Any]) -> Iterable[Kept]:
    yield keep_reference(lambda: value.get(_EMPTY), lambda content: content is not _EMPTY and value.set(content))


def _by_its_class(value: Any) -> Iterable[Kept] | None:
    """Keep an object of C code, a table of pandas for instance, as its class lets pickle do it; None if it does not."""
    if not hasattr(type(value), "__setstate__") or hasattr(type(value), "__next__"):
        return None
    try:
        before = copy.deepcopy(value.__reduce_ex__(4)[2])
    except Exception:  # whatever keeps it from being pickled or copied
        return None
    return [
        Kept(lambda: pickled(value) or object(), lambda content: value.__setstate__(copy.deepcopy(before)), _nothing)
    ]


def _function(value: Any) -> Iterable[Kept]:
    yield from _holding(lambda: [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()])
    yield from map(keep_cell, value.__closure__ or ())


def _holding(parts: Callable[[], Iterable[Any]]) -> Iterable[Kept]:
    """Keep nothing of a value but what its parts hold."""
    yield Kept(lambda: None, _nothing, lambda content: parts())


def _saver(
    read: Callable[[Any], Any], write: Callable[[Any, Any], object], parts: Callable[[Any], Iterable[Any]] = iter
) -> Callable[[Any], Iterable[Kept]]:
    """Keep what is read from a value, and can be written to it."""

    def save(value: Any) -> Iterable[Kept]:
        yield Kept(functools.partial(read, value), functools.partial(write, value), parts, value)

    return save


_SAVERS: dict[type, Callable[[Any], Iterable[Kept]]] = {
    dict: _saver(_items, _set_items),
    **dict.fromkeys((list, collections.deque), _saver(_elements, _set_elements)),
    set: _saver(frozenset, _set_members),
    **dict.fromkeys((tuple, frozenset), lambda value: _holding(lambda: value)),
    np.ndarray: _array,
    bytearray: _saver(bytes, lambda value, content: value.__setitem__(slice(None), content), _nothing),
    contextvars.ContextVar: _variable,
    types.FunctionType: _function,
    types.MethodType: lambda value: _holding(lambda: [value.__self__]),
    functools.partial: lambda value: _holding(lambda: [value.func, value.args, value.keywords]),
    random.SystemRandom: _nothing,
    **{kind: _saver(read, write, _nothing) for kind, (read, write) in CONTENTS.items()},
}
