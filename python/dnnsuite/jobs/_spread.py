# SPDX-License-Identifier: MIT
"""A training that may have several processes, one for each device, with one model between them."""

from __future__ import annotations

from . import distributed
from ._plain_job import PlainJob
from ._workload import JobConfig


class SpreadJob(PlainJob):
    """Knows its `place` among the processes and its device there; `batch_size` is of each process."""

    def __init__(self, config: JobConfig) -> None:
        super().__init__(config)
        self.place = distributed.place_of(self.scope)
        self.device = distributed.device_of(self.place, self.device)

    @property
    def items_per_step(self) -> int:
        """Items of one step, counted over all processes."""
        return self.config.batch_size * self.place.world_size

    def close(self) -> None:
        super().close()
        distributed.finish()
