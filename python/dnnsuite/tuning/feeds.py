# SPDX-License-Identifier: MIT
"""Batches of an epoch: a function of seed and epoch only, not of reader, time or other trials; and batches of an array
out of those of its trials: shared without a copy, stacked, or ragged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, default_collate

from .._fuse import stack
from .._seeds import Generators, seeded
from .._torch_threads import torch_threads
from ..errors import InvalidArgument
from .space import Config, WatchedConfig, alike

Batch = Any


class Feed:
    """The training data of some trials.

    Attributes:
        key: trials with the same key have batches of the same sizes, and may share an array.
        seed: seed of the order; epoch e is read with the seed `seed + e`.
    """

    def __init__(self, source: Any, seed: int, key: Any) -> None:
        self.source, self.seed, self.key = source, seed, key

    def epoch(self, number: int) -> Iterator[Batch]:
        """Yield the batches of epoch `number`, from 0."""
        seed = self.seed + number
        rows = _rows_of(self.source)
        if rows is not None:
            yield from self._gathered(*rows, seed)
            return
        self._settle(number, seed)
        generators = Generators(seed)
        with generators.lent():
            batches = iter(self.source)
        while True:
            with generators.lent():
                batch = next(batches, _END)
            if batch is _END:
                return
            yield batch

    def _gathered(self, tensors: Sequence[torch.Tensor], loader: Any, seed: int) -> Iterator[Batch]:
        """Batches of tensors by their indices at once, as the loader would collate the samples one by one."""
        self._settle(None, seed)
        with seeded(seed):
            torch.empty((), dtype=torch.int64).random_(generator=loader.generator)  # as its workers' seed is drawn
            batches = list(loader.batch_sampler)
        for indices in batches:
            at = torch.as_tensor(indices)
            yield [tensor[at] for tensor in tensors]

    def _settle(self, number: int | None, seed: int) -> None:
        """Give what draws on its own the seed of this epoch."""
        loader = self.source
        sampler = getattr(loader, "sampler", None)
        for generator in (getattr(loader, "generator", None), getattr(sampler, "generator", None)):
            if isinstance(generator, torch.Generator):
                generator.manual_seed(seed)
        for part in (loader, sampler, getattr(loader, "dataset", None)):
            set_epoch = getattr(part, "set_epoch", None)
            if callable(set_epoch):
                set_epoch(seed - self.seed if number is None else number)


_END = object()


def _rows_of(loader: Any) -> tuple[Sequence[torch.Tensor], Any] | None:
    """Return (tensors, loader) if the loader only gathers rows of tensors, in this process."""
    plain = type(loader) is DataLoader and type(loader.dataset) is TensorDataset
    if not plain or loader.collate_fn is not default_collate or loader.num_workers or loader.batch_sampler is None:
        return None
    return loader.dataset.tensors, loader


def batch_size_of(loader: Any) -> int:
    """Samples of a batch, 0 where it does not say."""
    return int(getattr(loader, "batch_size", None) or 0)


class Feeds:
    """The data of each trial: one source for all, one per trial, or a function of the configuration.

    Args:
        source: a DataLoader or another iterable of batches; a tuple of tensors or a Dataset, which get a shuffling
            loader of `batch_size` (a trial's own, where its configuration has one); a list of loaders, trial i has
            number i; a function of the configuration that returns any of these.
        batch_size: samples of a batch, for tensors and datasets.
        seed: seed of the order in all trials.

    Raises:
        InvalidArgument: `source` is none of these.
    """

    def __init__(self, source: Any, batch_size: int | None, seed: int, shuffle: bool = True) -> None:
        self._source, self._batch_size, self._seed, self._shuffle = source, batch_size, seed, shuffle
        self._made: dict[Any, Feed] = {}
        self._of: dict[int, tuple[Config, Feed]] = {}
        self.read: set[str] = set()  # names of the configuration that a function of it reads
        if isinstance(source, (Mapping, str, bytes)) or not (callable(source) or _iterable(source)):
            raise InvalidArgument(
                f"the data are a {type(source).__name__}: give a DataLoader, a tuple of tensors, a Dataset, a list of "
                "loaders with one per trial, or a function of the configuration"
            )
        _refuse_arrays(source)
        for each in source if isinstance(source, list) else [source]:
            _refuse_read_once(each)
        if isinstance(source, list) and source and isinstance(source[0], Mapping):
            raise InvalidArgument(
                "a list of dicts is given, and a list has the data of trial i at place i: for a list of batches give "
                "DataLoader(batches, batch_size=None)"
            )

    def check_count(self, trials: int) -> None:
        """Refuse a list that has not one source for each of the trials.

        Raises:
            InvalidArgument: it has more, as a list of batches, or fewer.
        """
        if isinstance(self._source, list) and len(self._source) != trials:
            raise InvalidArgument(
                f"train has {len(self._source)} sources for {trials} trials: a list has the data of trial i at "
                "place i; for a list of batches give DataLoader(batches, batch_size=None)"
            )

    def of(self, number: int, config: Config) -> Feed:
        """Return the feed of a trial."""
        known = self._of.get(number)
        if known is None or not alike(known[0], config):
            known = self._of[number] = dict(config), self._found(number, config)
        return known[1]

    def _found(self, number: int, config: Config) -> Feed:
        source: Any = self._source
        key: Any = None
        if callable(source) and not _iterable(source):
            watched = WatchedConfig(config)
            source = source(watched)
            key = ("made", id(source), watched.get("batch_size"))
            _refuse_read_once(source)
            self.read |= watched.read
        elif isinstance(source, list):
            if number >= len(source):
                raise InvalidArgument(f"train has {len(source)} loaders, and there is a trial {number}: give one each")
            source, key = source[number], ("listed", id(source[number]))
        size = config.get("batch_size", self._batch_size)
        if key is None and _needs_loader(source):
            key = ("size", size)
        if key not in self._made:
            self._made[key] = self._feed(source, size)
        return self._made[key]

    def _feed(self, source: Any, size: Any) -> Feed:
        if _needs_loader(source):
            source = _loader(source, size, self._shuffle)
        return Feed(source, self._seed, _sizes(source))


def _refuse_arrays(source: Any) -> None:
    """Refuse arrays that are no tensors, and tensors that are in no tuple: rows, or one source for each trial."""
    if isinstance(source, torch.Tensor):
        raise InvalidArgument("the data are one tensor: give a tuple, for example (inputs,) or (inputs, targets)")
    if not isinstance(source, (tuple, list)):
        source = [source]
    elif isinstance(source, list) and any(isinstance(part, torch.Tensor) for part in source):
        raise InvalidArgument(
            "a list of tensors is given, and a list has the data of trial i at place i: for data of all trials "
            "give a tuple, for example (inputs, targets)"
        )
    for part in source:
        if hasattr(part, "__array__") and not isinstance(part, torch.Tensor):
            raise InvalidArgument(
                f"the data hold a {type(part).__module__}.{type(part).__name__}: give tensors, by torch.as_tensor"
            )


def _refuse_read_once(source: Any) -> None:
    """Refuse a generator, or another iterator: each epoch of each array reads the data again."""
    if isinstance(source, Iterator):
        raise InvalidArgument(
            f"the data are a {type(source).__name__}, which can be read once: give a DataLoader, or of a list of "
            "batches DataLoader(batches, batch_size=None)"
        )


def _iterable(source: Any) -> bool:
    return hasattr(source, "__iter__") or hasattr(source, "__getitem__")


def _needs_loader(source: Any) -> bool:
    tensors = isinstance(source, tuple) and all(isinstance(part, torch.Tensor) for part in source)
    return tensors or isinstance(source, torch.utils.data.Dataset)


def _loader(source: Any, size: Any, shuffle: bool) -> DataLoader[Any]:
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise InvalidArgument(
            f"batch_size is {size!r}: give a whole number, 1 or more, for all or in the configuration, or a DataLoader"
        )
    if isinstance(source, tuple):
        if len({len(tensor) for tensor in source}) != 1:
            raise InvalidArgument(f"tensors of {[len(tensor) for tensor in source]} samples: give as many of each")
        source = TensorDataset(*source)
    return DataLoader(source, size, shuffle=shuffle and not isinstance(source, IterableDataset))


def _sizes(loader: Any) -> Any:
    """Key of the batch sizes; a source that does not tell them shares with no other."""
    try:
        return batch_size_of(loader) or id(loader), len(loader)
    except TypeError:
        return "unsized", id(loader)


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
