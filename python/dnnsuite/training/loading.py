# SPDX-License-Identifier: MIT
"""Batches of each model of a run, in an order that is a function of seed and epoch alone, whatever the number of
processes.

A process or its workers prepare them: the same bits for any number of workers. Models with the same samples in the same
order share them.
"""

from __future__ import annotations

import multiprocessing
import random
import signal
import threading
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import connection
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, default_collate

from .._seeds import seed_all
from .._torch import abandon_loader
from ..errors import Error, InvalidArgument

if TYPE_CHECKING:
    from .experiment import Experiment
    from .processes import Processes


class Share(NamedTuple):
    """One process's part of a batch.

    Attributes:
        epoch: epoch of the batch; augmentation depends on it.
        indices: indices of this process's samples.
        whole: samples in the batch, over all processes.
        counted: samples of `indices` that count: 0 where the process got none and takes one to keep in step.
    """

    epoch: int
    indices: list[int]
    whole: int
    counted: int


class Order:
    """Shuffled batches of a training set.

    Each epoch is a permutation of its own, cut into batches; a process of rank r takes every world_size-th sample of
    each batch from the r-th on. So the batches, and their union, do not depend on the number of processes.

    Args:
        samples: size of the training set.
        batch_size: samples of a batch, over all processes.
        drop_last: leave out the rest of a permutation that fills no batch.
        most: batches of an epoch; 0 for all.
    """

    def __init__(self, samples: int, batch_size: int, seed: int = 0, drop_last: bool = True, most: int = 0) -> None:
        self.samples, self.batch_size, self.seed = samples, batch_size, seed
        full = samples // batch_size
        self.steps = full if drop_last else -(-samples // batch_size)
        self.steps = min(self.steps, most) if most else self.steps

    @property
    def dropped(self) -> int:
        """Samples of each epoch that no step sees; others in each epoch."""
        return max(0, self.samples - self.steps * self.batch_size)

    def batches(self, epoch: int, start: int = 0) -> Iterator[torch.Tensor]:
        """Indices `[n]` of each batch of an epoch, from batch `start` on."""
        mixed = ((self.seed & 0xFFFFFFFF) << 31) ^ (epoch * 0x9E3779B1 & 0x7FFFFFFF)
        order = torch.randperm(self.samples, generator=torch.Generator().manual_seed(mixed))
        for step in range(start, self.steps):
            yield order[step * self.batch_size : (step + 1) * self.batch_size]


def share_of(batch: torch.Tensor, epoch: int, rank: int, world_size: int) -> Share:
    """Take one of `world_size` processes' part of a batch."""
    mine = batch[rank::world_size].tolist()
    return Share(epoch, mine or batch[:1].tolist(), len(batch), len(mine))


def validation_batches(samples: int, batch_size: int, rank: int, world_size: int) -> Iterator[Share]:
    """Yield the validation batches of one process; every sample is in one batch of one process.

    Args:
        samples: number of samples.
        batch_size: most samples of a batch.
        rank, world_size: number of this process, and of all.
    """
    mine = range(samples)[rank::world_size]
    for start in range(0, len(mine), batch_size):
        indices = list(mine[start : start + batch_size])
        yield Share(0, indices, len(indices), len(indices))


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


Batch = tuple[torch.Tensor, torch.Tensor]
Fed = tuple[Share, dict[int, Batch]]  # of each model, by number


class Feed:
    """Training and validation batches for each experiment of a run, one or several.

    A batch that several models share is loaded once, and is the same object for all of them.

    Args:
        experiments: experiments with equal numbers of steps and of validation samples.
    """

    def __init__(self, experiments: Sequence[Experiment], processes: Processes) -> None:
        self._experiments, self._processes = experiments, processes
        self._train_keys = [(id(each.data.train), each.seed) for each in experiments]
        self._valid_keys = [id(each.data.valid) for each in experiments]
        streams = len(set(self._train_keys))
        pinned = processes.device.type == "cuda"
        self._train: dict[tuple[int, int], Loader] = {}
        self._valid: dict[int, Loader] = {}
        for each, train, valid in zip(experiments, self._train_keys, self._valid_keys, strict=True):
            workers = -(-each.workers // streams)  # all streams together have about as many as one
            if train not in self._train:
                self._train[train] = Loader(each.data.train, each.seed, workers, pinned)
            if valid not in self._valid:
                self._valid[valid] = Loader(each.data.valid, each.seed, workers, pinned)

    def training(self, epoch: int, start: int, models: Sequence[int]) -> Iterator[Fed]:
        """Batches of an epoch from step `start` on, for each of these models, by number."""
        own = {self._train_keys[model]: self._shares(model, epoch, start) for model in reversed(models)}
        return _together({m: self._train_keys[m] for m in models}, {k: self._train[k](s) for k, s in own.items()})

    def validation(self, models: Sequence[int]) -> Iterator[Fed]:
        """Batches of this process's part of the validation samples, for each of these models, by number."""
        first, place = self._experiments[0], self._processes
        at = (0, 1) if first.shard else (place.rank, place.world_size)  # a model in parts is called by all at once
        shares = list(validation_batches(len(first.data.valid), first.valid_batch_size, *at))
        keys = {model: self._valid_keys[model] for model in models}
        return _together(keys, {key: self._valid[key](shares) for key in dict.fromkeys(keys.values())})

    def _shares(self, model: int, epoch: int, start: int) -> list[Share]:
        place, order = self._processes, self._experiments[model].order
        return [share_of(batch, epoch, place.rank, place.world_size) for batch in order.batches(epoch, start)]

    def check(self, error: Exception) -> None:
        """Raise LostWorker if `error` came of a worker that has ended."""
        for loader in self._loaders():
            loader.check(error)

    def close(self) -> None:
        """End the workers."""
        for loader in self._loaders():
            loader.close()

    def _loaders(self) -> Iterator[Loader]:
        yield from self._train.values()
        yield from self._valid.values()


def _together(keys: Mapping[int, Hashable], loaders: Mapping[Any, Iterator[tuple[Share, Batch]]]) -> Iterator[Fed]:
    """Batches of all models, each from the loader of its key."""
    for found in zip(*loaders.values(), strict=True):
        of = dict(zip(loaders, found, strict=True))
        yield found[0][0], {model: of[key][1] for model, key in keys.items()}
