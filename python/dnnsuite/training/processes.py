# SPDX-License-Identifier: MIT
"""Processes of one run: agreement on anything but gradients."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import distributed as group

from ..errors import Error
from ..jobs.distributed import Place, device_of, join, place_of

T = TypeVar("T")

# gloo tells so of a process that is gone; NCCL and the store have errors of their own.
_LOST = re.compile(r"(?i)gloo.*(peer|broken pipe|timed out|read error|write error|connect)")


class Processes:
    """Processes of one run, this one and the others. Alone, every method returns at once.

    Numbers are exchanged over gloo between the CPUs: nothing waits for a GPU.

    Args:
        kind: kind of the devices, cpu or cuda.
    """

    def __init__(self, kind: str) -> None:
        self.place: Place = place_of("all")
        self.device: torch.device = device_of(self.place, torch.device(kind))
        join(self.place, self.device)
        self._control = group.new_group(backend="gloo") if self.world_size > 1 else None

    @property
    def rank(self) -> int:
        """Rank of this process."""
        return self.place.rank

    @property
    def world_size(self) -> int:
        """Number of processes."""
        return self.place.world_size

    @property
    def first(self) -> bool:
        """True in the process that writes the files."""
        return self.rank == 0

    def any(self, flag: bool) -> bool:
        """Return True in all processes if `flag` is True in any."""
        if self._control is None:
            return flag
        value = torch.tensor(int(flag))
        group.all_reduce(value, group.ReduceOp.MAX, group=self._control)
        return bool(value)

    def total(self, values: Sequence[float]) -> list[float]:
        """Return each value's sum over the processes."""
        if self._control is None:
            return list(values)
        sums = torch.tensor(values, dtype=torch.float64)
        group.all_reduce(sums, group=self._control)
        found: list[float] = sums.tolist()
        return found

    def least(self, value: float) -> float:
        """Return the smallest of the processes' values."""
        if self._control is None:
            return value
        least = torch.tensor(value, dtype=torch.float64)
        group.all_reduce(least, group.ReduceOp.MIN, group=self._control)
        return float(least)

    def gathered(self, value: T) -> list[T]:
        """Return the value of each process, by rank."""
        if self._control is None:
            return [value]
        found: list[Any] = [None] * self.world_size
        group.all_gather_object(found, value, group=self._control)
        return found

    def by_first(self, work: Callable[[], T]) -> T:
        """Do `work` in the first process and return its result in all of them.

        Raises:
            Error: it raised one there; the first process has the error itself.
        """
        if self._control is None:
            return work()
        told: list[Any] = [None]
        failure: Exception | None = None
        if self.first:
            try:
                told[0] = ("found", work())
            except Exception as error:
                told[0], failure = ("failed", str(error)), error
        group.broadcast_object_list(told, 0, group=self._control)
        if failure is not None:
            raise failure
        outcome, found = told[0]
        if outcome == "failed":
            raise Error(f"the first process failed: {found}")
        return found

    def lost(self, error: Exception) -> bool:
        """Return True if `error` was caused by another process that is gone, for example with its node."""
        return self.world_size > 1 and (isinstance(error, group.DistError) or bool(_LOST.search(str(error))))

    def refuse_lost(self, error: RuntimeError, checkpoint: Path) -> None:
        """Raise Error if `error` was caused by another process that is gone, for example with its node.

        Args:
            checkpoint: checkpoint to resume from, for the message.
        """
        if not self.lost(error):
            return
        kept = f"the last checkpoint is {checkpoint}" if checkpoint.is_file() else "there is no checkpoint yet"
        raise Error(
            f"process {self.rank} of {self.world_size} lost another one, which ended or whose node is gone: {kept}; "
            "continue with --resume auto"
        ) from error

    def same_buffers(self, model: torch.nn.Module) -> None:
        """Give every process the first one's buffers, as running statistics: validation is of one model."""
        if self._control is not None:
            for buffer in model.buffers():
                group.broadcast(buffer, 0)

    def close(self) -> None:
        """End the exchange of numbers. The processes' group stays: a later run in them uses it again."""
        if self._control is not None:
            group.destroy_process_group(self._control)
            self._control = None
