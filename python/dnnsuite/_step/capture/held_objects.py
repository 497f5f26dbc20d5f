# SPDX-License-Identifier: MIT
"""Values in an array's Python state that may change in place unseen by their holder: tensors that are not buffers, and
all objects but lists, dictionaries and those that keep their state in attributes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from ..._state import Walk


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
            self._objects.append(value)  # a tensor has attributes, too
        self.keep()

    def keep(self) -> None:
        """Remember their current contents."""
        self._versions = [tensor._version for tensor, _ in self._tensors]
        self._walks = [Walk(value) for value in self._objects]

    def changed(self) -> bool:
        """Return True if one was changed in place."""
        return self._other_tensors() or self.other_objects()

    def _other_tensors(self) -> bool:
        return [tensor._version for tensor, _ in self._tensors] != self._versions

    def other_objects(self) -> bool:
        """Return True if one that is not a tensor has changed: its copies must be made again."""
        for number, walk in enumerate(self._walks):
            if not walk.same():
                now = Walk(walk.root)
                if now.snapshot != walk.snapshot:
                    return True
                self._walks[number] = now
        return False

    def carry_over(self) -> None:
        """Copy the values of the array's tensors into the copies."""
        pairs = zip(self._tensors, self._versions, strict=True)
        for (tensor, copies), version in pairs:
            for copy in copies if tensor._version != version else ():
                copy.detach().copy_(tensor.detach())
        self.keep()


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
