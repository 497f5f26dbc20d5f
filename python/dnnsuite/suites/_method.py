# SPDX-License-Identifier: MIT
"""The suite's method: `number` batches are timed together, `repeat` times; the device is waited for once in between.

After mila-iqia/training (2019), whose README gives the loop. Losses stay on the device until the wait.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .. import timing
from .._lazy import torch
from .._runs.failures import NotFinite

if TYPE_CHECKING:
    from ..jobs import Job

SKIP = 10  # observations that the original drops
LOSSES = 100  # that it keeps


def first_kept(repeat: int) -> int:
    """Number of observations that are dropped: the original's ten, but never more than half of a short run."""
    return min(SKIP, repeat // 2)


@dataclass
class Observations:
    """Observations of one job, in order; the first `skip` are warm-up. Times are of the monotonic clock.

    Attributes:
        waits_ns: time that each observation waited for data.
        watch: disturbances of each observation.
        losses: those of the last 100 batches; lowest_loss and highest_loss are of all.
    """

    number: int
    skip: int
    starts_ns: list[int] = field(default_factory=list)
    stops_ns: list[int] = field(default_factory=list)
    waits_ns: list[int] = field(default_factory=list)
    first_loss: float = math.nan
    losses: deque[float] = field(default_factory=lambda: deque(maxlen=LOSSES))
    lowest_loss: float = math.inf
    highest_loss: float = -math.inf
    watch: timing.Contention = field(default_factory=timing.Contention)

    def add(self, start_ns: int, stop_ns: int, wait_ns: int, losses: Sequence[float]) -> None:
        """Take in an observation and the losses of its batches."""
        if not self.starts_ns:
            self.first_loss = losses[0]
        self.starts_ns.append(start_ns)
        self.stops_ns.append(stop_ns)
        self.waits_ns.append(wait_ns)
        self.losses.extend(losses)
        self.lowest_loss = min(self.lowest_loss, *losses)
        self.highest_loss = max(self.highest_loss, *losses)

    @property
    def seconds(self) -> list[float]:
        """Duration of every observation."""
        return [(stop - start) * 1e-9 for start, stop in zip(self.starts_ns, self.stops_ns, strict=True)]

    @property
    def timed(self) -> timing.RepeatNumber:
        """The same as the timing core has it: average, deviation and extremes of what is kept."""
        perf = timing.RepeatNumber(len(self.starts_ns), self.number, self.skip)
        for seconds in self.seconds:
            perf.add(seconds)
        return perf


def observe(
    job: Job, repeat: int, number: int, tell: Callable[[int, Observations], None] = lambda i, seen: None
) -> Observations:
    """Time `repeat` observations of exactly `number` batches each.

    Args:
        job: set up, with everything it starts running.
        tell: called after each observation, out of what is timed.

    Raises:
        NotFinite: a loss is NaN or infinite; the message says of which batch.
    """
    seen = Observations(number, first_kept(repeat))
    job.synchronize()
    for index in range(repeat):
        losses = []
        waited_ns = job.data_wait_ns
        with seen.watch:
            start_ns = timing.now_ns()
            for _ in range(number):
                job.step()
                losses.append(job.last_loss)
            job.synchronize()
            stop_ns = timing.now_ns()
        seen.add(start_ns, max(stop_ns, start_ns + 1), job.data_wait_ns - waited_ns, _finite(losses, index * number))
        tell(index, seen)
    return seen


def _finite(losses: list[Any], before: int) -> list[float]:
    """Return the losses' values, fetched together where they are tensors."""
    values: list[float] = losses
    if not isinstance(losses[0], float):
        values = torch.stack([loss.detach().reshape(()).float() for loss in losses]).tolist()
    for i, value in enumerate(values):
        if not math.isfinite(value):
            raise NotFinite(f"the loss of batch {before + i + 1} is {value}")
    return values
