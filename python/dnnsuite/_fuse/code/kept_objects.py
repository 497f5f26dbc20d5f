# SPDX-License-Identifier: MIT
"""Contents of objects and containers that modules hold, as they were before a forward that may have to start again."""

from __future__ import annotations

import collections
import contextvars
import random
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch

from ...nn.model_tensor import ModelTensor, physical
from ..comparison import same
from ..left_tensors import OPAQUE
from .fused_attributes import PLAIN_VALUES
from .stand_in import StandInDict

_MANY = 20_000  # objects that are looked into
_LARGE = 2**16  # elements of an array or a tensor that is not copied
_PLAIN_TYPES = frozenset(PLAIN_VALUES)
_SYSTEM = frozenset(("logging", "threading", "_thread", "_io", "io", "weakref", "_weakrefset", "typing"))
_UNSET = object()  # in place of the value of a context variable or a slot that has none
_OF_OURS = __name__.partition(".")[0]


class KeptObjects:
    """All that can be reached from `values` through containers, attributes and slots, not through modules.

    Not to be made, nor put back, where operators are recorded.
    """

    def __init__(self, values: Iterable[Any]) -> None:
        self._seen: dict[int, Any] = {}
        self._kept: list[_Kept] = []
        waiting = list(values)
        while waiting and len(self._seen) < _MANY:
            value = waiting.pop()
            if type(value) in _PLAIN_TYPES or isinstance(value, OPAQUE) or id(value) in self._seen:
                continue
            if type(value).__module__ in _SYSTEM:
                continue
            self._seen[id(value)] = value
            for kind in _KINDS:
                for kept in kind.of(value):
                    self._kept.append(kept)
                    waiting += kept.parts()

    def put_back(self) -> None:
        """Restore all contents."""
        for kept in self._kept:
            if kept.changed():
                kept.put_back()

    def seen(self) -> Iterable[Any]:
        """List all that was looked into."""
        return self._seen.values()

    def changed(self) -> bool:
        """Return True if some contents are other ones."""
        return any(kept.changed() for kept in self._kept)


class _Kept:
    """Content of `value`; there is a subclass for each kind of holder."""

    def __init__(self, value: Any, content: Any) -> None:
        self.value, self.content = value, content

    @classmethod
    def of(cls, value: Any) -> Iterator[_Kept]:
        raise NotImplementedError

    def parts(self) -> Iterable[Any]:
        return ()

    def changed(self) -> bool:
        raise NotImplementedError

    def put_back(self) -> None:
        raise NotImplementedError


class _Dictionary(_Kept):
    """A dictionary, or the attributes of an object."""

    @classmethod
    def of(cls, value: Any) -> Iterator[_Kept]:
        if isinstance(value, dict) and not isinstance(value, StandInDict):
            yield cls(value, dict(dict.items(value)))
        held = getattr(value, "__dict__", None)
        if type(held) is dict and not type(value).__module__.startswith(_OF_OURS):
            yield cls(held, dict(held))

    def parts(self) -> Iterable[Any]:
        return list(self.content.values())

    def changed(self) -> bool:
        now = list(dict.items(self.value))
        return len(now) != len(self.content) or any(
            a is not c or b is not d for (a, b), (c, d) in zip(now, self.content.items(), strict=True)
        )

    def put_back(self) -> None:
        dict.clear(self.value)
        dict.update(self.value, self.content)


class _Container(_Kept):
    """A list, a deque or a set."""

    @classmethod
    def of(cls, value: Any) -> Iterator[_Kept]:
        if isinstance(value, (list, collections.deque, set, tuple)):
            yield cls(value, list(value))

    def parts(self) -> Iterable[Any]:
        return list(self.content)

    def changed(self) -> bool:
        if isinstance(self.value, set):
            return self.value != set(self.content)
        return len(self.value) != len(self.content) or any(
            a is not b for a, b in zip(self.value, self.content, strict=True)
        )

    def put_back(self) -> None:
        self.value.clear()
        (self.value.update if isinstance(self.value, set) else self.value.extend)(self.content)


class _Slots(_Kept):
    """Attributes of an object that are not in a dictionary; those of C, as in a `partial`, are looked into only: code
    cannot write them, and some are new objects at each look."""

    @classmethod
    def of(cls, value: Any) -> Iterator[_Kept]:
        if type(value).__module__.startswith(_OF_OURS):
            return
        slots = [
            (slot, held, "__slots__" in vars(base))
            for base in type(value).__mro__
            for slot in vars(base).values()
            if isinstance(slot, types.MemberDescriptorType) and (held := _in_slot(slot, value)) is not _UNSET
        ]
        if slots:
            yield cls(value, slots)

    def parts(self) -> Iterable[Any]:
        return [held for _, held, _ in self.content]

    def changed(self) -> bool:
        return any(own and _in_slot(slot, self.value) is not held for slot, held, own in self.content)

    def put_back(self) -> None:
        for slot, held, own in self.content:
            if own and _in_slot(slot, self.value) is not held:
                slot.__set__(self.value, held)


def _in_slot(slot: types.MemberDescriptorType, owner: Any) -> Any:
    try:
        return slot.__get__(owner)
    except AttributeError:  # nothing was assigned
        return _UNSET


class _Array(_Kept):
    """An array of NumPy's."""

    @classmethod
    def of(cls, value: Any) -> Iterator[_Kept]:
        if type(value) is np.ndarray and value.flags.writeable and value.size <= _LARGE:
            yield cls(value, value.copy())

    def changed(self) -> bool:
        return self.value.tobytes() != self.content.tobytes()

    def put_back(self) -> None:
        np.copyto(self.value, self.content)


class _Tensor(_Kept):
    """A tensor that is no parameter and no buffer; of one of all models also what it stands for."""

    @classmethod
    def of(cls, value: Any) -> Iterator[_Kept]:
        if type(value) not in (torch.Tensor, ModelTensor):
            return
        held = physical(value)
        written = not held.requires_grad and held.numel() <= _LARGE
        if written or type(value) is ModelTensor:
            yield cls(value, (held, held._version, held.clone() if written else None))

    def changed(self) -> bool:
        held, version, _ = self.content
        return physical(self.value) is not held or bool(held._version != version)

    def put_back(self) -> None:
        held, version, numbers = self.content
        if type(self.value) is ModelTensor:
            self.value.become(held)
        if numbers is not None and held._version != version:
            held.copy_(numbers)


class _Variable(_Kept):
    """A context variable."""

    @classmethod
    def of(cls, value: Any) -> Iterator[_Kept]:
        if isinstance(value, contextvars.ContextVar):
            yield cls(value, value.get(_UNSET))

    def parts(self) -> Iterable[Any]:
        return () if self.content is _UNSET else (self.content,)

    def changed(self) -> bool:
        return self.value.get(_UNSET) is not self.content

    def put_back(self) -> None:
        if self.content is not _UNSET:
            self.value.set(self.content)


class _Generator(_Kept):
    """A generator of random numbers that is the user's own."""

    #: How to read the state of each kind, and how to set it.
    _ways: tuple[tuple[type, Callable[[Any], Any], Callable[[Any, Any], Any]], ...] = (
        (random.Random, random.Random.getstate, random.Random.setstate),
        (torch.Generator, torch.Generator.get_state, torch.Generator.set_state),
        (
            np.random.Generator,
            lambda g: g.bit_generator.state,
            lambda g, s: setattr(g.bit_generator, "state", s),
        ),
        (np.random.RandomState, np.random.RandomState.get_state, np.random.RandomState.set_state),
    )

    @classmethod
    def of(cls, value: Any) -> Iterator[_Kept]:
        for kind, read, write in cls._ways:
            if isinstance(value, kind):
                yield cls(value, (read(value), read, write))

    def changed(self) -> bool:
        state, read, _ = self.content
        return not same(read(self.value), state)

    def put_back(self) -> None:
        state, _, write = self.content
        write(self.value, state)


_KINDS = (_Dictionary, _Container, _Slots, _Array, _Tensor, _Variable, _Generator)
