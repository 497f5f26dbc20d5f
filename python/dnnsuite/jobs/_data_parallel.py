# SPDX-License-Identifier: MIT
"""Training of one model by several processes, one for each device."""

from __future__ import annotations

from . import distributed
from ._job import JobConfig
from ._plain_job import PlainJob


class SpreadJob(PlainJob):
    """Plain job with a `place` among the processes and a device there; `batch_size` is that of each process."""

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
