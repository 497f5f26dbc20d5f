# SPDX-License-Identifier: MIT
"""Prediction of the memory that a step of many adapters takes, from two steps of one of them.

What a step holds is additive: the base once, each adapter with its optimizer's state, and activations in proportion to
the tokens. One model's step on one sequence and on two shows the last; the rest is counted.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .._torch import TorchDispatchMode, tree_leaves
from ..errors import InvalidArgument
from .adapt import adapt
from .losses import next_token


@dataclass(frozen=True)
class Memory:
    """Peak bytes of tensors in a step.

    Attributes:
        base: the frozen model, once.
        adapters: all adapters, with their optimizer state.
        activations: tensors kept for the backward pass, or the gradients if they are more.
        models: number of models.
    """

    base: int
    adapters: int
    activations: int
    models: int

    @property
    def peak(self) -> int:
        """Bytes of all parts together."""
        return self.base + self.adapters + self.activations

    def fit(self, room: int) -> int:
        """Return the number of models, of the mean size of these, that fit into so many bytes.

        >>> Memory(base=100, adapters=40, activations=60, models=4).fit(250)
        6
        """
        return max(0, (room - self.base) * self.models // max(1, self.adapters + self.activations))


def memory(
    base: torch.nn.Module, configs: Sequence[Any], batch: Mapping[str, torch.Tensor], *, states: int = 2
) -> Memory:
    """Predict the peak memory of a step of `losses.next_token` in bytes, from two steps of one model.

    Only tensors are counted; the allocator, and operators while they run, need some more.

    Args:
        base: a torch module without an adapter.
        configs: one per model, as for `adapt`.
        batch: a batch of the array from `collate`, of which the mask is read.
        states: numbers that the optimizer keeps for each parameter: 2 for AdamW, 1 for SGD with momentum.

    Raises:
        InvalidArgument: the batch is for another number of models.
    """
    mask = batch["attention_mask"]
    if len(mask) != len(configs):
        raise InvalidArgument(f"the batch is of {len(mask)} models, and there are {len(configs)} configs")
    array = adapt(base, configs)
    array.train(base.training)
    own = sum(p.nbytes for p in array.parameters() if p.requires_grad)
    length = int(mask.sum(-1).max())
    one, two = (_activations(base, configs, array.padding(), count, length) for count in (1, 2))
    tokens = mask.numel() if array.padding() else int(mask.sum())  # a padded batch computes them all
    activations = one + (two - one) * (tokens - length) // length
    return Memory(_bytes((*base.parameters(), *base.buffers())), (1 + states) * own, max(activations, own), len(mask))


def _activations(base: torch.nn.Module, configs: Sequence[Any], padded: str, sequences: int, length: int) -> int:
    """Measure the peak of a step of one model, above what is there before it."""
    largest = max(configs, key=lambda config: getattr(config, "r", 0) or 0)
    array = adapt(base, [largest]).train(base.training)
    device = next(base.parameters()).device
    ids = torch.zeros(1, sequences, length, dtype=torch.int64, device=device)
    if not padded:
        array.padding()  # the audit is no part of a step
    with _Live() as live:
        next_token(array, {"input_ids": ids}).sum().backward()
    return live.peak


class _Live(TorchDispatchMode):
    """Count the bytes of the tensors that operators make while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._seen: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = _storages((args, kwargs))
        made = func(*args, **(kwargs or {}))
        for key, storage in _storages(made).items():
            if key not in given and key not in self._seen:
                self._seen.add(key)
                self.now += storage.nbytes()
                weakref.finalize(storage, self._free, key, storage.nbytes())
        self.peak = max(self.peak, self.now)
        return made

    def _free(self, key: int, size: int) -> None:
        self._seen.discard(key)
        self.now -= size


def _storages(values: Any) -> dict[int, torch.UntypedStorage]:
    tensors = [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]
    return {tensor.untyped_storage()._cdata: tensor.untyped_storage() for tensor in tensors}


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(storage.nbytes() for storage in _storages(list(tensors)).values())
