# SPDX-License-Identifier: MIT
"""Batches of each model of a run: models with the same samples in the same order share them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import torch

from .experiment import Experiment
from .loading import Loader
from .order import Share, share_of, validation_batches
from .processes import Processes

__all__ = ["Batch", "Fed", "Feed"]

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
