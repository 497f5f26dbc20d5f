# SPDX-License-Identifier: MIT
"""Values in an array's Python state that may change in place unseen by their holder: tensors that are not buffers, and
all objects but lists, dictionaries and those that keep their state in attributes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from ..._state import Walk, Watch


class HeldObjects:
    """Values of an array that its copies hold too, each with its counterparts in the copies.

    Args:
        values: each value of the array with its counterparts in the copies, None where there is none.
    """

    def __init__(self, values: Iterable[tuple[Any, Sequence[Any]]]) -> None:
        self._tensors: list[tuple[torch.Tensor, list[torch.Tensor]]] = []
        self._all: list[Any] = []  # a tensor has attributes, too, and may get other memory
        self._objects: dict[str, Any] = {}  # which may hold tensors that are written
        for value, theirs in values:
            self._all.append(value)
            if isinstance(value, torch.Tensor):
                self._tensors += _followed(value, theirs)
            else:
                self._objects[str(len(self._objects))] = value
        self.keep()

    def keep(self) -> None:
        """Remember their current contents."""
        self._versions = [tensor._version for tensor, _ in self._tensors]
        self._walks = list(map(Walk, self._all))
        self._watch, self._others = Watch(self._objects, lambda name, value: True), False

    def changed(self) -> bool:
        """Return True if one was changed in place."""
        return [tensor._version for tensor, _ in self._tensors] != self._versions or self.other_objects()

    def other_objects(self) -> bool:
        """Return True if one has changed in more than a tensor's values: its copies must be made again."""
        self._others = self._others or any(map(_other, self._walks)) or bool(self._watch.changed(self._objects))
        return self._others

    def carry_over(self) -> None:
        """Copy the values of the array's tensors into the copies."""
        pairs = zip(self._tensors, self._versions, strict=True)
        for (tensor, copies), version in pairs:
            for copy in copies if tensor._version != version else ():
                copy.detach().copy_(tensor.detach())
        self.keep()


def _other(walk: Walk) -> bool:
    if walk.same():
        return False
    now = Walk(walk.root)
    return (now.snapshot, now.marks) != (walk.snapshot, walk.marks)


def _followed(tensor: torch.Tensor, theirs: Sequence[Any]) -> Iterator[tuple[torch.Tensor, list[torch.Tensor]]]:
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
