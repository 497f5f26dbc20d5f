# SPDX-License-Identifier: MIT
"""Structure of batches, and copies of them for steps that run after their caller has gone on."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import Any

import torch

from .._fuse import is_record, names_of_record

Build = Callable[[Sequence[Any]], Any]


def opened(value: Any) -> tuple[Sequence[Any], Sequence[Any], Build] | None:
    """Take a tuple, named tuple, mapping, dataclass or namespace apart; None for anything else.

    Returns the names of its parts, the parts, and a function that builds such a value from other parts.
    """
    if isinstance(value, tuple):
        names = getattr(value, "_fields", None)
        return names or (), value, type(value) if names is None else type(value)._make  # type: ignore[attr-defined]
    if isinstance(value, MutableMapping):
        keys = tuple(value)

        def fill(parts: Sequence[Any]) -> Any:
            other = copy.copy(value)
            for key, part in zip(keys, parts, strict=True):
                other[key] = part
            return other

        return keys, [value[key] for key in keys], fill
    if is_record(value):
        fields = names_of_record(value)

        def assign(parts: Sequence[Any]) -> Any:
            other = copy.copy(value)
            for name, part in zip(fields, parts, strict=True):
                object.__setattr__(other, name, part)  # also where it is frozen
            return other

        return fields, [getattr(value, name) for name in fields], assign
    return None


def with_parts(value: Any, function: Callable[[Any], Any]) -> Any:
    """Apply `function` to the parts of `value` and put the results together again; values without parts stay as they
    are."""
    found = opened(value)
    return value if found is None else found[2]([function(part) for part in found[1]])


def own_copy(batch: Any, leave: Callable[[torch.Tensor], bool] = lambda tensor: False) -> Any:
    """Copy a batch: same structure, layouts and values, tensors of its own but for those to `leave`."""
    known: dict[int, torch.Tensor] = {}

    def copied(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) not in known:
                known[id(value)] = value if leave(value) else static_copy(value)
            return known[id(value)]
        if isinstance(value, list):
            return list(map(copied, value))
        return with_parts(value, copied)

    return copied(batch)


def tensors_of(batch: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of a batch."""
    if isinstance(batch, torch.Tensor):
        yield batch
        return
    found = ((), batch) if isinstance(batch, list) else opened(batch)
    for part in found[1] if found else ():
        yield from tensors_of(part)


_WATCHED = 2  # first steps, which show what all steps write into


class LentBatches:
    """Copies of batches for steps that run after their caller has gone on.

    A step that writes into its batch, as `x.clamp_()` in a forward does, writes into the copy: `hand_back` brings that
    to the caller's tensors. Whether steps do is seen in the first ones.
    """

    def __init__(self) -> None:
        self._left, self._written = _WATCHED, False
        self._lent: list[tuple[torch.Tensor, torch.Tensor, int]] = []

    @property
    def awaited(self) -> bool:
        """True if the caller waits for the end of a step, to see what it has written. Shards then take their turns: a
        write into one's part counts for autograd as one into the parts of all."""
        return self._written or self._left > 0

    def lend(self, batch: Any) -> Any:
        """Copy a batch; tensors that take a gradient stay the caller's own."""
        copied = own_copy(batch, leave=lambda tensor: tensor.requires_grad)
        if self.awaited:
            pairs = zip(tensors_of(batch), tensors_of(copied), strict=True)
            self._lent = [(tensor, own, own._version) for tensor, own in pairs if own is not tensor]
        return copied

    def hand_back(self) -> None:
        """Write into the caller's tensors what the step that has ended has written into their copies."""
        self._left = max(0, self._left - 1)
        for tensor, own, version in self._lent:
            if own._version != version:
                self._written = True
                copy_over(tensor, own)
        self._lent = []


def static_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a tensor with its layout; a dimension of stride 0 (a batch that all models share) stays one."""
    if tensor.layout != torch.strided:
        return tensor.detach().clone()
    once = compact(tensor)
    copy = torch.empty_strided(once.shape, once.stride(), dtype=tensor.dtype, device=tensor.device)
    return copy.copy_(once).expand(tensor.shape)


def copy_over(own: torch.Tensor, new: torch.Tensor) -> None:
    """Write the values of `new` into `own`, a `static_copy` of one like it."""
    compact(own).copy_(compact(new), non_blocking=True)


def compact(tensor: torch.Tensor) -> torch.Tensor:
    """View a tensor without autograd, and with one place only along dimensions that repeat it (of stride 0)."""
    tensor = tensor.detach()
    if tensor.layout == torch.strided and 0 in tensor.stride():
        for dimension, stride in enumerate(tensor.stride()):
            if stride == 0:
                tensor = tensor.narrow(dimension, 0, min(1, tensor.size(dimension)))
    return tensor
