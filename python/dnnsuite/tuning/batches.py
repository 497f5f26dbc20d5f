# SPDX-License-Identifier: MIT
"""Batches of an array out of those of its trials: shared without a copy, stacked, or ragged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from .._fuse import stack
from .._torch_threads import torch_threads
from ..errors import InvalidArgument
from .feeds import Feed


def side_by_side(readers: Sequence[tuple[Feed, int]]) -> Iterator[Any]:
    """Yield batches `[B, N, ...]`, one of each reader (feed, epoch); equal readers are read once.

    Raises:
        InvalidArgument: the readers have different numbers of batches.
    """
    keys = list(dict.fromkeys((id(feed), epoch) for feed, epoch in readers))
    feeds = {id(feed): feed for feed, _ in readers}
    iterators = [feeds[feed].epoch(epoch) for feed, epoch in keys]
    places = [keys.index((id(feed), epoch)) for feed, epoch in readers]
    for number, batches in enumerate(_together(iterators)):
        if batches is None:
            raise InvalidArgument(
                f"the trials' data have different numbers of batches: one ends after {number}; give loaders with a "
                "length, whose trials are dealt to arrays of their own"
            )
        yield stacked([batches[place] for place in places], len(keys) == 1)


def _together(iterators: Sequence[Iterator[Any]]) -> Iterator[list[Any] | None]:
    while True:
        with torch_threads(1):  # the array's threads have the CPUs
            batches = [next(iterator, None) for iterator in iterators]
        if all(batch is None for batch in batches):
            return
        yield None if any(batch is None for batch in batches) else batches


def stacked(batches: Sequence[Any], shared: bool) -> Any:
    """Make one batch for all models of theirs: shared without a copy, or stacked, or a list where sizes differ.

    Raises:
        InvalidArgument: a batch holds something else than tensors, and lists and dicts of them.
    """
    first = batches[0]
    if isinstance(first, torch.Tensor):
        if shared:
            return stack(first, len(batches))
        if len({batch.shape for batch in batches}) > 1:
            return list(batches)
        return torch.stack(list(batches))
    if isinstance(first, Mapping):
        return {name: stacked([batch[name] for batch in batches], shared) for name in first}
    if isinstance(first, (list, tuple)):
        return tuple(stacked([batch[i] for batch in batches], shared) for i in range(len(first)))
    raise InvalidArgument(f"a batch holds a {type(first).__name__}: it may hold tensors, and lists and dicts of them")


def arguments_of(batch: Any, device: str) -> tuple[Any, ...]:
    """Return the arguments of a step on `device`: a mapping is one, a sequence is many."""
    if device != "cpu":
        batch = _mapped(lambda x: x.to(device, non_blocking=True), batch)
    return batch if isinstance(batch, tuple) else (batch,)  # a list is ragged: a tensor per model


def _mapped(function: Callable[[torch.Tensor], torch.Tensor], batch: Any) -> Any:
    if isinstance(batch, torch.Tensor):
        return function(batch)
    if isinstance(batch, Mapping):
        return {name: _mapped(function, part) for name, part in batch.items()}
    return type(batch)(_mapped(function, part) for part in batch)
