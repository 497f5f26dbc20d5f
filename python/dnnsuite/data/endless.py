# SPDX-License-Identifier: MIT
"""Batches that other processes prepare, without end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .._lazy import torch
from ..errors import InvalidArgument
from .order import Order

_AT_ONCE = 1024  # indices


class EndlessLoader:
    """Batches of a map-style dataset in random order, prepared by `workers` processes (0: by this one).

    torch's DataLoader with one endless iterator: no epoch waits for workers to start, none ends with a smaller
    batch. Its processes have started, and the first batch is there, when the constructor returns. `seed` decides
    the order and the workers' random numbers; of `world_size` processes, each reads other samples.

    Raises InvalidArgument if there are fewer samples than processes, or (then and from `next`) as the dataset does.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        workers: int = 0,
        seed: int = 0,
        *,
        pin_memory: bool = False,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        order = Order(len(dataset), seed, rank, world_size)
        loader = torch.utils.data.DataLoader(
            dataset,
            batch_size,
            sampler=_Endless(order),
            num_workers=workers,
            pin_memory=pin_memory,
            generator=torch.Generator().manual_seed(seed + rank),
        )
        self._iterator: Iterator[Any] | None = iter(loader)
        self._first = self._next()

    def __iter__(self) -> EndlessLoader:
        return self

    def __next__(self) -> Any:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        return self._next()

    def _next(self) -> Any:
        if self._iterator is None:
            raise InvalidArgument("the loader is closed")
        try:
            return next(self._iterator)
        except InvalidArgument as error:  # from a worker, its message comes with the whole traceback
            last = str(error).strip().splitlines()[-1]
            kind = type(error)
            raise kind(last.removeprefix(f"dnnsuite.errors.{kind.__name__}: ")) from error

    def close(self) -> None:
        """End the workers. Idempotent."""
        self._iterator = self._first = None  # torch ends them when the iterator goes


class _Endless:
    """A sampler for DataLoader."""

    def __init__(self, order: Order) -> None:
        self._order = order

    def __iter__(self) -> Iterator[int]:
        while True:
            yield from self._order.take(_AT_ONCE).tolist()
