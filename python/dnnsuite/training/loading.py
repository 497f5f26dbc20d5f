# SPDX-License-Identifier: MIT
"""Batches for a process, prepared by it or by workers: the same bits for any number of workers."""

from __future__ import annotations

import multiprocessing
import random
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from multiprocessing import connection
from typing import Any, Protocol

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, default_collate

from .._seeds import seed_all
from .._torch import abandon_loader
from ..errors import Error, InvalidArgument
from .order import Share

__all__ = ["Loader", "LostWorker", "Samples"]


_PATIENCE_S = 2.0


class LostWorker(Error):
    """Raised when a process that prepares batches has ended, by a signal or by itself."""


class Samples(Protocol):
    """A map-style dataset: `len`, and `dataset[i]` as (input, label).

    One that also has `batch(indices, epoch)` makes a batch at once.
    """

    def __len__(self) -> int:
        """Number of samples."""

    def __getitem__(self, index: int) -> Any:
        """One sample."""


class Loader:
    """Loader that yields (share, (inputs, labels)) for each share it is given.

    Args:
        dataset: samples; what the dataset draws from torch's, numpy's or Python's global generators is seeded for each
            sample with seed, epoch and index.
        workers: processes that prepare batches; 0 for none. They live until `close`.
        pinned: put batches into page-locked memory, from which copies to a GPU need not wait.
    """

    def __init__(self, dataset: Any, seed: int = 0, workers: int = 0, pinned: bool = False) -> None:
        self._given = _Given()
        self._loader: DataLoader[Any] | None = DataLoader(
            _ByBatch(dataset, seed),
            batch_size=None,
            sampler=self._given,
            num_workers=workers,
            pin_memory=pinned,
            persistent_workers=workers > 0,
            worker_init_fn=_leave_signals_to_parent,
            generator=torch.Generator(),  # of its own: making an iterator draws a number
        )
        self._iterator: Any = None
        self._workers: list[multiprocessing.process.BaseProcess] = []

    def __call__(self, shares: Iterable[Share]) -> Iterator[tuple[Share, tuple[torch.Tensor, torch.Tensor]]]:
        """Batches of these shares, in their order.

        Raises:
            LostWorker: a worker has ended.
            Error: of the package's own, as raised for a sample, in a worker too.
        """
        self._given.shares = list(shares)
        try:
            yield from zip(self._given.shares, self._begun(), strict=True)
        except Error as error:
            raise _as_raised(error) from error
        except (RuntimeError, OSError, EOFError) as error:
            self.check(error)
            raise

    def _begun(self) -> Iterator[Any]:
        """Torch's iterator; the workers, which the first one starts, are noted."""
        assert self._loader is not None, "closed"
        if self._iterator is not None and self._workers:
            return iter(self._loader)
        before = set(multiprocessing.active_children())
        try:
            self._iterator = iter(self._loader)
            return self._iterator
        finally:  # also where one died while others were started
            if self._loader.num_workers:
                self._workers = [each for each in multiprocessing.active_children() if each not in before]

    def check(self, error: Exception) -> None:
        """Raise LostWorker if `error` came of a worker that has ended; the others are killed then."""
        # A pipe's error may come before its worker is seen to be dead.
        patience_s = 0.0 if isinstance(error, RuntimeError) else _PATIENCE_S
        closed = connection.wait([each.sentinel for each in self._workers], patience_s)
        ended = [each for each in self._workers if each.sentinel in closed]
        for each in ended:
            each.join()  # its files are closed; the kernel may not have done with it
        if not ended and not str(error).startswith("DataLoader worker (pid"):  # one that died as it started
            return
        how = _how_ended(ended[0].exitcode) if ended else "ended as it started"
        self.close()
        raise LostWorker(
            f"a process that prepares batches {how}; continue with --resume auto, and with a smaller num_data_workers "
            "if memory ran out"
        )

    def close(self) -> None:
        """End the workers."""
        iterator, count = self._iterator, self._loader.num_workers if self._loader else 0
        self._iterator = self._loader = None
        workers, self._workers = self._workers, []
        if len(workers) == count and all(each.is_alive() for each in workers):
            del iterator  # torch asks them to end, and waits
        elif iterator is not None:
            abandon_loader(iterator)
        with _children_unheard():
            for each in workers:  # they do not hear SIGTERM, which torch or the end of this process would send
                each.kill()
                each.join()


@contextmanager
def _children_unheard() -> Iterator[None]:
    """Keep torch from raising an error, wherever the main thread is, for a worker that is killed on purpose."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL if before is None else before)


def _how_ended(status: int | None) -> str:
    if status is not None and status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"ended with exit status {status}"


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
        seed_all(seed)
        return self._dataset[index]


def _as_raised(error: Error) -> Error:
    """Return an error as it was in a worker; torch hands on its traceback as the message."""
    lines = str(error).strip().splitlines()
    if len(lines) < 2 or "DataLoader worker" not in lines[0]:
        return error
    return type(error)(lines[-1].partition(": ")[2])


def _leave_signals_to_parent(worker: int) -> None:
    """Ctrl-C reaches all processes of a terminal; the loop ends its step, and then its workers."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
