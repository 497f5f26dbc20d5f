# SPDX-License-Identifier: MIT
"""Jobs that a workflow sweeps: workloads of which many train as one array."""

from __future__ import annotations

import abc
import random
from collections.abc import Mapping
from typing import Any, ClassVar

from ._job import Job, JobConfig


class FusedJob(Job):
    """A workload with a fused form: hyper-parameters, epochs and a check of equality for a workflow."""

    family: ClassVar[str] = "fused"
    families: ClassVar[tuple[str, ...]] = ("fused",)

    @classmethod
    def precisions(cls, device: str) -> list[str]:
        """Return the precisions that the job can train in on `device`."""
        return ["fp32", "amp"] if device.startswith("cuda") else ["fp32"]

    @classmethod
    @abc.abstractmethod
    def preset(cls, name: str, device: str) -> dict[str, Any]:
        """Defaults of the workflow by name (`quick`, `default`, `paper`): those of a `Preset` that the job chooses."""

    @classmethod
    @abc.abstractmethod
    def hyperparameters(cls, generator: random.Random, models: int) -> dict[str, list[float]]:
        """Random hyper-parameters for `models` models, as a sweep would draw them."""

    @classmethod
    @abc.abstractmethod
    def check_equality(cls, config: JobConfig, steps: int = 3) -> dict[str, Any]:
        """Train the fused array and B separate torch models alike and compare their losses; see the job."""

    @classmethod
    def inspect(cls, config: JobConfig) -> int:
        """Load the data and make one model, as runs will, so that errors are raised before the first run.

        Returns:
            Bytes of one model's parameters; 0 if unknown.
        """
        return 0

    @abc.abstractmethod
    def end_epoch(self) -> None:
        """Go on to the next epoch: learning-rate schedules."""

    @classmethod
    def default_precisions(cls, device: str) -> list[str]:
        """Return the precisions of a workflow that is asked for none: those of HFTA's that the job has."""
        offered = cls.precisions(device)
        return [name for name in ("fp32", "amp") if name in offered] or offered

    @classmethod
    def option_defaults(cls) -> Mapping[str, Any] | None:
        """Return the job's options and their defaults; None where only the job itself knows them."""
        return None

    def hold_batches(self, count: int) -> bool:
        """Train on the next `count` batches in turn from now on, kept on the device; return False if that is not
        possible."""
        return False
