# SPDX-License-Identifier: MIT
"""Values in an array's Python state that may change in place unseen by their holder: tensors that are not buffers,
NumPy arrays, sets, queues, objects with slots."""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

MOST = 2**16  # elements of an array or a container that are compared
_DEEP = 3  # objects in objects that are looked into
_NO_OBJECTS = (torch.Tensor, torch.nn.Module, type, types.ModuleType, types.FunctionType, types.MethodType)
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def _slots(kind: Any) -> tuple[str, ...]:
    """List the slots that Python code has given a class and its bases."""
    return tuple(
        name
        for base in kind.__mro__
        if "__slots__" in vars(base)
        for name, slot in vars(base).items()
        if isinstance(slot, types.MemberDescriptorType)
    )


#: `_slots`, looked up once for each class.
slots_of_class: Callable[[Any], tuple[str, ...]] = functools.lru_cache(maxsize=1024)(_slots)


def picture(value: Any, depth: int = _DEEP) -> Any:
    """Copy `value` so that the copy compares unequal after a change in place; the id of a value that cannot be copied
    so."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, np.ndarray):
        return (value.shape, value.tobytes()) if value.size <= MOST and value.dtype != object else id(value)
    if isinstance(value, (set, frozenset)):
        return frozenset(value) if len(value) <= MOST else len(value)
    if isinstance(value, (list, tuple, collections.deque)) and depth and len(value) <= MOST:
        return type(value), tuple(picture(part, depth - 1) for part in value)
    if isinstance(value, dict) and depth and len(value) <= MOST:
        return tuple((picture(k, 1), picture(part, depth - 1)) for k, part in value.items())
    names = slots_of_class(type(value)) if depth else ()
    held = [(name, getattr(value, name)) for name in names if hasattr(value, name)]
    if depth and not isinstance(value, _NO_OBJECTS):
        held += getattr(value, "__dict__", {}).items()
    return id(value), tuple((name, picture(part, depth - 1)) for name, part in held)


def _is_watched(value: Any) -> bool:
    if isinstance(value, (np.ndarray, set, collections.deque)):
        return True
    if isinstance(value, tuple):  # the rest of the state is looked for in lists, dictionaries and objects
        return not all(isinstance(part, (*_PLAIN, *_NO_OBJECTS)) for part in value)
    return not isinstance(value, (torch.Tensor, torch.nn.Module, type)) and bool(slots_of_class(type(value)))


class HeldObjects:
    """Values of an array that its copies hold too, each with its counterparts in the copies.

    Args:
        values: each value of the array with its counterparts in the copies, None where there is none.
    """

    def __init__(self, values: Iterable[tuple[Any, Sequence[Any]]]) -> None:
        self._tensors: list[tuple[torch.Tensor, list[torch.Tensor]]] = []
        self._objects: list[Any] = []
        for value, theirs in values:
            if isinstance(value, torch.Tensor):
                self._tensors += _followed(value, theirs)
            elif _is_watched(value):
                self._objects.append(value)
        self.keep()

    def keep(self) -> None:
        """Remember their current contents."""
        self._versions = [tensor._version for tensor, _ in self._tensors]
        self._pictures = list(map(picture, self._objects))

    def changed(self) -> bool:
        """Return True if one was changed in place."""
        return self._other_tensors() or self.other_objects()

    def _other_tensors(self) -> bool:
        return [tensor._version for tensor, _ in self._tensors] != self._versions

    def other_objects(self) -> bool:
        """Return True if one that is not a tensor has changed: its copies must be made again."""
        return bool(self._objects) and list(map(picture, self._objects)) != self._pictures

    def carry_over(self) -> None:
        """Copy the values of the array's tensors into the copies."""
        pairs = zip(self._tensors, self._versions, strict=True)
        for (tensor, copies), version in pairs:
            for copy in copies if tensor._version != version else ():
                copy.detach().copy_(tensor.detach())
        self.keep()


def _followed(
    tensor: torch.Tensor, theirs: Sequence[Any]
) -> Iterator[tuple[torch.Tensor, list[torch.Tensor]]]:
    """Yield a tensor and its copies, if it has some that do not share its memory and can be written."""
    if type(tensor) is not torch.Tensor or tensor.is_inference() or tensor.layout != torch.strided:
        return
    mine = tensor.untyped_storage()._cdata
    copies = [
        copy
        for copy in theirs
        if type(copy) is torch.Tensor and copy.shape == tensor.shape and copy.untyped_storage()._cdata != mine
    ]
    if copies:
        yield tensor, copies
