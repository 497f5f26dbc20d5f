# SPDX-License-Identifier: MIT
"""Speed-up of training with every further device of a machine."""

from __future__ import annotations

import math
import os
import time
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import InvalidArgument
from ._job import Job, JobConfig, register
from ._replica import OPTIONS, Team

if TYPE_CHECKING:
    import torch

_WARMUP = 2  # steps
_CPU_DEVICES = 2


@register("scaling")
class Scaling(Job):
    """`network` on 1, 2, ... `devices` devices (0: all) by DistributedDataParallel, a process and `batch_size` each.

    Setup measures each number of devices, `steps` after 2 that do not count. `metrics` has the speeds in images per
    second, and as `efficiency` their share of the ideal: (speed_n / speed_1) / n. Steps on all devices are timed
    afterwards. On a CPU a device is a share of the cores; there are 2 unless asked otherwise.
    A step's loss is the mean over devices, and known after `synchronize`.
    """

    description = "ResNet-101 on 1, 2, ... devices: what each of them adds"
    unit = "images"
    scope = "all"
    defaults: ClassVar = {"batch_size": 128, "repeat": 10, "number": 10, **OPTIONS}
    smoke: ClassVar = {"batch_size": 2, "repeat": 4, "number": 1, "image_size": 32, "steps": 2}

    def __init__(self, config: JobConfig) -> None:
        super().__init__(config)
        for name in ("image_size", "steps"):
            if self.options[name] < 1:
                raise InvalidArgument(f"{name} must be 1 or more, got {self.options[name]}")
        self.devices = self._count()
        self.speeds: dict[int, float] = {}
        self._team: Team | None = None
        self._pending: list[torch.Tensor] = []

    def _count(self) -> int:
        """Number of devices to go up to."""
        import torch

        asked = self.options["devices"]
        cuda = self.device.type == "cuda"
        there = torch.cuda.device_count() if cuda else len(os.sched_getaffinity(0))
        if not 0 <= asked <= (there if cuda else max(there, _CPU_DEVICES)):
            what = "GPUs" if cuda else "cores"
            raise InvalidArgument(f"devices {asked}: this machine has {there} {what} (0: as many as it makes sense)")
        return int(asked) or (there if cuda else min(there, _CPU_DEVICES))

    def setup(self) -> None:
        self._team = Team(self.devices, self.config)
        for count in range(1, self.devices + 1):
            self._parameters = self._team.begin(count)
            self.speeds[count] = self._measure(self._team, count)

    def _measure(self, team: Team, count: int) -> float:
        """Images per second of `count` devices together."""
        for _ in range(_WARMUP):
            team.step(count)
        team.wait(count)
        began_ns = time.monotonic_ns()
        for _ in range(self.options["steps"]):
            team.step(count)
        team.wait(count)
        elapsed_s = (time.monotonic_ns() - began_ns) * 1e-9
        return self.options["steps"] * count * self.config.batch_size / elapsed_s

    @property
    def items_per_step(self) -> int:
        return self.config.batch_size * self.devices

    @classmethod
    def precisions(cls, device: str) -> list[str]:
        return ["fp32", "bf16", "fp16"]

    def step(self) -> None:
        import torch

        assert self._team is not None, "setup was not called"
        self._team.step(self.devices)
        self._pending.append(torch.tensor(math.nan))
        self._last = self._pending[-1]

    @property
    def last_loss(self) -> torch.Tensor:
        """The last step's loss, which `synchronize` fills in."""
        return self._last

    def synchronize(self) -> None:
        if self._team is None or not self._pending:
            return
        of_each = self._team.wait(self.devices)
        for loss, values in zip(self._pending, zip(*of_each, strict=True), strict=True):
            loss.fill_(sum(values) / len(values))
        self._pending.clear()

    def losses(self) -> list[float]:
        self.synchronize()
        return [float(self._last)]

    def metrics(self) -> dict[str, float]:
        speeds = {f"speed_{n}": speed for n, speed in self.speeds.items()}
        efficiencies = {f"efficiency_{n}": speed / self.speeds[1] / n for n, speed in self.speeds.items()}
        return {**speeds, **efficiencies, "efficiency": efficiencies[f"efficiency_{self.devices}"]}

    def provenance(self) -> dict[str, Any]:
        return {
            "data": {"source": f"synthetic: noise, seed {self.config.data_seed}", "licence": "none needed"},
            "model": {
                "network": self.options["network"],
                "image_size": self.options["image_size"],
                "weights": "random",
            },
            "parameters": self._parameters,
            "optimizer": "SGD, lr 0.01, momentum 0.9",
            "devices": self.devices,
        }

    def close(self) -> None:
        if self._team is not None:
            self._team.close()
            self._team = None
