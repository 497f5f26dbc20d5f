# SPDX-License-Identifier: MIT
"""Jobs that a workflow sweeps: workloads of which many train as one array."""

from __future__ import annotations

import abc
import random
from typing import Any

from ._workload import JobConfig, Workload


class FusedJob(Workload):
    """A workload with a fused form: hyper-parameters, epochs and a check of equality for a workflow."""

    @classmethod
    def precisions(cls, device: str) -> list[str]:
        """The precisions that the job can train in on `device`."""
        return ["fp32", "amp"] if device.startswith("cuda") else ["fp32"]

    @classmethod
    @abc.abstractmethod
    def preset(cls, name: str, device: str) -> dict[str, Any]:
        """Defaults of the workflow by name (`quick`, `paper`): epochs, iters_per_epoch, repeats, max_B, max_num_Bs."""

    @classmethod
    @abc.abstractmethod
    def hyperparameters(cls, generator: random.Random, models: int) -> dict[str, list[float]]:
        """Random hyper-parameters for `models` models, as a sweep would draw them."""

    @classmethod
    @abc.abstractmethod
    def check_equality(cls, config: JobConfig, steps: int = 3) -> dict[str, Any]:
        """Train the fused array and B separate torch models alike and compare their losses; see the job."""

    @abc.abstractmethod
    def end_epoch(self) -> None:
        """Go on to the next epoch: learning-rate schedules."""
