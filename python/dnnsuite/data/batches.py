# SPDX-License-Identifier: MIT
"""Endless batches: of samples in memory, in random order, and of a data set that other processes prepare."""

from __future__ import annotations

import copy
import functools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .._lazy import numpy as np
from .._lazy import torch
from ..errors import BadData, InvalidArgument


class Order:
    """Indices below `count` without end: a new permutation each epoch, a batch may span two of them.

    Of `world_size` processes with the same seed, each gets other samples: the rank-th of every `world_size`.

    Raises InvalidArgument if there are fewer samples than processes.
    """

    def __init__(self, count: int, seed: int = 0, rank: int = 0, world_size: int = 1) -> None:
        if count < world_size:
            raise InvalidArgument(f"{count} samples are not enough for {world_size} processes")
        self.count, self.rank, self.world_size = count, rank, world_size
        self._generator = torch.Generator().manual_seed(seed)
        self._rest = torch.empty(0, dtype=torch.int64)

    def take(self, n: int) -> torch.Tensor:
        """Return the next indices `[n]`, on the CPU."""
        parts, missing = [self._rest], n - len(self._rest)
        while missing > 0:
            parts.append(torch.randperm(self.count, generator=self._generator)[self.rank :: self.world_size])
            missing -= len(parts[-1])
        taken = torch.cat(parts)
        self._rest = taken[n:]
        return taken[:n]


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


class BatchesInTurn:
    """Batches that are drawn one after the other; an earlier one is drawn again from the beginning.

    Args:
        begin: returns a function that draws batch 0, 1, ... in turn; each of the functions draws the same.
        record, sizes: provenance and sizes, as those of `ArrayBatches`.
    """

    def __init__(
        self,
        begin: Callable[[], Callable[[], tuple[torch.Tensor, ...]]],
        record: Mapping[str, Any],
        sizes: Mapping[str, Any] | None = None,
    ) -> None:
        self._begin, self.record, self.sizes = begin, dict(record), dict(sizes or {})
        self._draw: Callable[[], tuple[torch.Tensor, ...]] | None = None
        self._next = 0

    @classmethod
    def drawn(cls, draw: Callable[[torch.Generator], tuple[torch.Tensor, ...]], seed: int, what: str) -> BatchesInTurn:
        """Batches that `draw` makes of one generator in turn; `what` says what they are, for the record."""
        record = {"source": f"drawn: {what}", "licence": "none needed"}
        return cls(lambda: functools.partial(draw, torch.Generator().manual_seed(seed)), record)

    @classmethod
    def of_rows(
        cls,
        whole: Sequence[torch.Tensor],
        batch_size: int,
        seed: int,
        record: Mapping[str, Any],
        prepare: Callable[[torch.Tensor], torch.Tensor] = lambda rows: rows,
    ) -> BatchesInTurn:
        """Batches of rows of tensors on a device, in the order of `Order`; `prepare` is called with those of each."""

        def begin() -> Callable[[], tuple[torch.Tensor, ...]]:
            order = Order(len(whole[0]), seed)

            def draw() -> tuple[torch.Tensor, ...]:
                rows = order.take(batch_size).to(whole[0].device, non_blocking=True)
                return tuple(prepare(part[rows]) for part in whole)

            return draw

        return cls(begin, record)

    def batch(self, i: int) -> tuple[torch.Tensor, ...]:
        """Batch i since training began."""
        if self._draw is None or i < self._next:
            self._draw, self._next = self._begin(), 0
        while self._next < i:
            self._draw()
            self._next += 1
        self._next += 1
        return self._draw()


class Rollouts:
    """Batches that a model makes.

    Args:
        play: (model, generator) → some batches; they are trained on in their order before it is called again.
        seed: seed of the generator.
        record, sizes: provenance and sizes, as those of `ArrayBatches`.
        game: environment that `play` acts in, whose scores are told and which is closed, such as a `data.games.Game`.
        graph: True to record what the model does, for a loss that goes back through it.

    Attributes:
        batch_size: number of samples of a batch, where it is not the job's.
    """

    batch_size: int

    def __init__(
        self,
        play: Callable[[Any, torch.Generator], list[tuple[torch.Tensor, ...]]],
        seed: int,
        record: Mapping[str, Any],
        sizes: Mapping[str, Any] | None = None,
        game: Any = None,
        graph: bool = False,
    ) -> None:
        self.record, self.sizes, self._graph = dict(record), dict(sizes or {}), graph
        self._play, self._generator = play, torch.Generator().manual_seed(seed)
        self._left = deque[tuple[torch.Tensor, ...]]()
        self.metrics = game.metrics if game else dict
        self.close = game.close if game else lambda: None

    def batch_of(self, model: Any, i: int) -> tuple[torch.Tensor, ...]:
        """Return batch i since training began; called for every i in ascending order.

        Raises:
            BadData: what `play` returned is no batches.
        """
        if not self._left:
            with torch.set_grad_enabled(self._graph):
                found = self._play(model, self._generator)
            if not found or not all(isinstance(batch, tuple | list) for batch in found):
                what = f"{len(found)} items that are none" if found else "none"
                raise BadData(f"`play` must return a list of batches, tuples of tensors; at batch {i} it gave {what}")
            self._left = deque(found)
        return self._left.popleft()


def shuffled(
    whole: Sequence[torch.Tensor], parts: int, generator: torch.Generator, epochs: int = 1
) -> list[tuple[torch.Tensor, ...]]:
    """Return `parts` equal parts of samples in a new order, for each of some epochs; a rest is left out.

    Args:
        whole: tensors of one first size.
    """
    found: list[tuple[torch.Tensor, ...]] = []
    for _ in range(epochs):
        order = torch.randperm(len(whole[0]), generator=generator).to(whole[0].device)
        order = order[: len(order) // parts * parts]
        found += [tuple(x[own] for x in whole) for own in order.chunk(parts)]
    return found


class Pooled:
    """Batches that were made beforehand, one after the other; `record` is as that of `ArrayBatches`."""

    def __init__(self, made: Sequence[tuple[torch.Tensor, ...]], record: Mapping[str, Any]) -> None:
        self._made, self.record, self.sizes = made, dict(record), dict[str, Any]()

    def batch(self, i: int) -> tuple[torch.Tensor, ...]:
        """Return batch i since training began."""
        return self._made[i % len(self._made)]


class Loaded:
    """Batches of a loader, in the order in which it has them; `record` is as that of `ArrayBatches`."""

    feed = "loader"

    def __init__(self, loader: EndlessLoader, record: Mapping[str, Any], prepare: Callable[[Any], Any] = tuple) -> None:
        self._loader, self.record, self.sizes, self._prepare = loader, dict(record), dict[str, Any](), prepare
        self.close = loader.close

    def batch(self, i: int) -> tuple[torch.Tensor, ...]:
        """Return the next batch."""
        found: tuple[torch.Tensor, ...] = self._prepare(next(self._loader))
        return found


class WholeBatch:
    """One batch, the same for every i, which counts as one sample; `record` is as that of `ArrayBatches`."""

    batch_size = 1

    def __init__(self, batch: tuple[torch.Tensor, ...], record: Mapping[str, Any]) -> None:
        self._batch, self.record, self.sizes = batch, dict(record), dict[str, Any]()

    def batch(self, i: int) -> tuple[torch.Tensor, ...]:
        """Return the batch."""
        return self._batch


class Endless:
    """A job's batches, which neither end nor change their number of samples: rates count `batch_size` in each.

    Samples are counted in the last tensor of a batch; all other attributes are those of `batches`.

    Args:
        job: name of the job, for messages.
        batches: batches as the job's data gave them.
    """

    def __init__(self, job: str, batches: Any) -> None:
        self._job, self._batches = job, batches
        self._first: tuple[int, int] | None = None  # index of the first batch, and its samples

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # while a copy of this is made
            raise AttributeError(name)
        return getattr(self._batches, name)

    def batch(self, i: int) -> tuple[torch.Tensor, ...]:
        """Return batch i.

        Raises:
            BadData: the data have ended, or the batch has another number of samples than the first.
        """
        try:
            batch: tuple[torch.Tensor, ...] = self._batches.batch(i)
        except StopIteration as error:
            raise BadData(f"the data of job {self._job} end before batch {i}: they must begin again") from error
        if not isinstance(batch, tuple | list) or not batch:
            raise BadData(f"batch {i} of job {self._job} must be a tuple of tensors, and is a {type(batch).__name__}")
        samples = next(iter(getattr(batch[-1], "shape", ())), 0)
        first, there = self._first = self._first or (i, samples)
        if samples != there:
            raise BadData(
                f"batch {i} of job {self._job} has {samples} samples, and batch {first} has {there}: all need as many"
            )
        return batch

    def again(self) -> Endless | None:
        """Return batches of the same samples that keep nothing of what these have drawn, if that is known of them."""
        known = type(self._batches) in (ArrayBatches, BatchesInTurn, Pooled, WholeBatch)
        return Endless(self._job, copy.copy(self._batches)) if known else None


class ArrayBatches:
    """Batches of rows of some tensors; batch i depends on the seed and on i alone.

    Each pass takes all samples in a new order; a batch may span two passes, so every one has `batch_size` samples.

    Args:
        samples: CPU tensors `[T, ...]` of one first size.
        batch_size: N, samples in a batch.
        seed: seed of the order, and of what `prepare` draws.
        record: provenance, for the record.
        sizes: sizes that the data decide, as the number of classes.
        prepare: (generator, *rows) → the tensors of a batch, as random crops of the rows; rows themselves if None.

    Raises:
        InvalidArgument: no samples, tensors of unlike first sizes, or a batch size below one.

    >>> import torch
    >>> from dnnsuite.data.batches import ArrayBatches
    >>> data = ArrayBatches(torch.arange(6.0), torch.arange(6), batch_size=4, seed=0, record={"source": "counted"})
    >>> [part.shape for part in data.batch(0)]
    [torch.Size([4]), torch.Size([4])]
    """

    def __init__(
        self,
        *samples: torch.Tensor,
        batch_size: int,
        seed: int = 0,
        record: Mapping[str, Any] | None = None,
        sizes: Mapping[str, Any] | None = None,
        prepare: Callable[..., tuple[torch.Tensor, ...]] | None = None,
    ) -> None:
        counts = [len(tensor) for tensor in samples]
        if not counts or min(counts) < 1 or len(set(counts)) > 1:
            raise InvalidArgument(f"batches need tensors with one number of samples, 1 or more; got {counts}")
        if batch_size < 1:
            raise InvalidArgument(f"batch_size {batch_size} is below 1")
        self.samples, self.batch_size, self.seed = samples, batch_size, seed
        self.record, self.sizes = dict(record or {}), dict(sizes or {})
        self._prepare = prepare
        self._orders: dict[int, torch.Tensor] = {}  # of the last passes

    def batch(self, i: int) -> tuple[torch.Tensor, ...]:
        """Batch i since training began, tensors `[N, ...]`."""
        if i < 0:
            raise InvalidArgument(f"batch {i} does not exist: batches count from 0")
        rows = self._rows(i)
        chosen = tuple(tensor[rows] for tensor in self.samples)
        return chosen if self._prepare is None else self._prepare(self._generator(1, i), *chosen)

    def _rows(self, i: int) -> torch.Tensor:
        """Indices of the samples in batch i, `[N]`."""
        count = len(self.samples[0])
        first, parts = i * self.batch_size, []
        while first < (i + 1) * self.batch_size:
            number, start = divmod(first, count)
            taken = self._order(number)[start : start + (i + 1) * self.batch_size - first]
            parts.append(taken)
            first += len(taken)
        return torch.cat(parts)

    def _order(self, number: int) -> torch.Tensor:
        """Return the order of the samples in a pass."""
        if number not in self._orders:
            self._orders = {n: order for n, order in self._orders.items() if n == number - 1}
            self._orders[number] = torch.randperm(len(self.samples[0]), generator=self._generator(0, number))
        return self._orders[number]

    def _generator(self, stream: int, number: int) -> torch.Generator:
        """Return a generator of its own for each pass and each batch, so that none needs those before it."""
        words = np.random.SeedSequence([self.seed & (2**64 - 1), stream, number]).generate_state(1, np.uint64)
        return torch.Generator().manual_seed(int(words[0] >> np.uint64(1)))
