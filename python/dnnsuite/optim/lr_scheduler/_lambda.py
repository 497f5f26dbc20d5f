# SPDX-License-Identifier: MIT
"""Schedules by the user's functions of the epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...errors import InvalidArgument
from ._base import LRScheduler, Vector

Function = Callable[[int], Any]


class LambdaLR(LRScheduler):
    """`torch.optim.lr_scheduler.LambdaLR` for B models: the first rate times `lr_lambda(epoch)`.

    `lr_lambda` is a function, or as in torch a list with one per group; instead of a function there may also be a tuple
    with one per model, and a function may return one number per model. `state_dict` holds no function.
    """

    def __init__(self, optimizer: Any, lr_lambda: Any, last_epoch: Any = -1) -> None:
        self._attach(optimizer)
        groups = len(optimizer.param_groups)
        lambdas = list(lr_lambda) if isinstance(lr_lambda, list) else [lr_lambda] * groups
        if len(lambdas) != groups:
            raise InvalidArgument(
                f"lr_lambda is a list of {len(lambdas)} for {groups} groups; functions of models go into a tuple"
            )
        self.lr_lambdas: list[Any] = lambdas
        for one in lambdas:
            if isinstance(one, tuple) and len(one) != self.B:
                raise InvalidArgument(f"lr_lambda is a tuple of {len(one)} functions for {self.B} models")
            if not callable(one) and not (isinstance(one, tuple) and all(map(callable, one))):
                raise InvalidArgument(f"lr_lambda is {one!r}; it must be a function of the epoch")
        super().__init__(optimizer, last_epoch)

    def _factors(self, place: int, epoch: Vector) -> Vector:
        numbers = [int(e) for e in epoch.tolist()]
        one = self.lr_lambdas[place]
        if isinstance(one, tuple):
            return torch.tensor([float(f(e)) for f, e in zip(one, numbers, strict=True)], dtype=torch.float64)
        known = {e: torch.as_tensor(one(e), dtype=torch.float64).expand(self.B) for e in sorted(set(numbers))}
        return torch.stack([known[e][model] for model, e in enumerate(numbers)])

    def rates(self, place: int, lr: Vector, epoch: Vector, initial: bool) -> Vector:
        return self.base_lrs[place] * self._factors(place, epoch)

    def select(self, indices: Sequence[int | None], functions: Sequence[Function] = (), **fresh: Any) -> None:
        """Keep some models, like `LRScheduler.select`; `functions` are the fresh models', if each has its own."""
        before = self.lr_lambdas
        B = len(self.last_epoch)
        if any(isinstance(one, tuple) for one in before) and len(functions) != list(indices).count(None):
            raise InvalidArgument(f"{list(indices).count(None)} fresh models, but {len(functions)} functions")

        def chosen(one: Any) -> Any:
            new = iter(functions)
            if not isinstance(one, tuple):
                return one
            return tuple(next(new) if i is None else one[i % B] for i in indices)

        self.lr_lambdas = [chosen(one) for one in before]
        try:
            super().select(indices, **fresh)
        except InvalidArgument:
            self.lr_lambdas = before
            raise


class MultiplicativeLR(LambdaLR):
    """`torch.optim.lr_scheduler.MultiplicativeLR` for B models: lr ← `lr_lambda(epoch)` · lr."""

    def rates(self, place: int, lr: Vector, epoch: Vector, initial: bool) -> Vector:
        return lr if initial else lr * self._factors(place, epoch)
