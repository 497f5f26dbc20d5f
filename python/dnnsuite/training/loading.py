# SPDX-License-Identifier: MIT
"""Batches for a process, prepared by it or by workers: the same bits for any number of workers."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, default_collate

from ..errors import Error, InvalidArgument
from .order import Share

__all__ = ["Loader", "Samples"]


class Samples(Protocol):
    """A map-style dataset: `len`, and `dataset[i]` as (input, label).

    One that also has `batch(indices, epoch)` makes a batch at once.
    """

    def __len__(self) -> int:
        """Number of samples."""

    def __getitem__(self, index: int) -> Any:
        """One sample."""


class Loader:
    """Yields (share, (inputs, labels)) for each share it is given.

    Args:
        dataset: of samples; what it draws from torch's, numpy's or Python's global generators is seeded for each
            sample with seed, epoch and index.
        workers: processes that prepare batches; 0 for none. They live until `close`.
        pinned: in page-locked memory, to be copied to a GPU at once.
    """

    def __init__(self, dataset: Any, seed: int = 0, workers: int = 0, pinned: bool = False) -> None:
        self._given = _Given()
        self._loader: DataLoader[Any] = DataLoader(
            _ByBatch(dataset, seed),
            batch_size=None,
            sampler=self._given,
            num_workers=workers,
            pin_memory=pinned,
            persistent_workers=workers > 0,
            worker_init_fn=_leave_signals_to_parent,
            generator=torch.Generator(),  # of its own: making an iterator draws a number
        )

    def __call__(self, shares: Iterable[Share]) -> Iterator[tuple[Share, tuple[torch.Tensor, torch.Tensor]]]:
        """Batches of these shares, in their order.

        Raises:
            Error: of the package's own, as raised for a sample, in a worker too.
        """
        self._given.shares = list(shares)
        try:
            yield from zip(self._given.shares, self._loader, strict=True)
        except Error as error:
            raise _as_raised(error) from error

    def close(self) -> None:
        """End the workers."""
        iterator = getattr(self._loader, "_iterator", None)
        if iterator is not None:
            self._loader._iterator = None
            del iterator


class _Given:
    """A sampler that repeats what it was given last."""

    def __init__(self) -> None:
        self.shares: list[Share] = []

    def __iter__(self) -> Iterator[Share]:
        return iter(self.shares)

    def __len__(self) -> int:
        return len(self.shares)


class _ByBatch(Dataset[Any]):
    """A dataset of batches, indexed by shares."""

    def __init__(self, dataset: Any, seed: int) -> None:
        self._dataset, self._seed = dataset, seed

    def __getitem__(self, share: Share) -> Any:
        if hasattr(self._dataset, "batch"):
            return self._dataset.batch(share.indices, share.epoch)
        before = torch.get_rng_state(), np.random.get_state(), random.getstate()
        try:
            return default_collate([self._one(index, share.epoch) for index in share.indices])
        except (TypeError, RuntimeError) as error:
            raise InvalidArgument(f"samples of this dataset make no batch: {error}") from error
        finally:
            torch.set_rng_state(before[0])
            np.random.set_state(before[1])
            random.setstate(before[2])

    def _one(self, index: int, epoch: int) -> Any:
        seed = (self._seed * 1_000_003 + epoch) * 2_147_483_659 + index & 0x7FFFFFFFFFFFFFFF
        torch.manual_seed(seed)
        np.random.seed(seed & 0xFFFFFFFF)
        random.seed(seed)
        return self._dataset[index]


def _as_raised(error: Error) -> Error:
    """An error as it was in a worker; torch hands on its traceback as the message."""
    lines = str(error).strip().splitlines()
    if len(lines) < 2 or "DataLoader worker" not in lines[0]:
        return error
    return type(error)(lines[-1].partition(": ")[2])


def _leave_signals_to_parent(worker: int) -> None:
    """Ctrl-C reaches all processes of a terminal; the loop ends its step, and then its workers."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
