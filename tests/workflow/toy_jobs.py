# SPDX-License-Identifier: MIT
"""Small jobs without tensors, for the workflow's tests; each misbehaves in one way."""

from __future__ import annotations

import math
import mmap
import os
import random
import resource
import signal
import time
from pathlib import Path
from typing import Any

from dnnsuite._runs.failures import NotFinite
from dnnsuite._runs.rates import write_samples
from dnnsuite._runs.spec import WorkerSpec
from dnnsuite._runs.worker import Siblings, TurnTaker
from dnnsuite.errors import BadData
from dnnsuite.jobs import Job, JobConfig, register
from dnnsuite.workflow.tasks import clock_for


@register("toy")
class Toy(Job):
    """Sleeps a little for each step; its loss falls."""

    description = "sleeps"
    unit = "naps"
    nap_s = 0.002

    def __init__(self, config: JobConfig) -> None:
        super().__init__(config)
        self.steps = 0

    @classmethod
    def precisions(cls, device: str) -> list[str]:
        return ["fp32"]

    @classmethod
    def preset(cls, name: str, device: str) -> dict[str, Any]:
        limit = None if name == "paper" else 2
        return {"epochs": 2, "iters_per_epoch": 3, "repeats": 1, "max_B": limit, "batch_size": 4}

    @classmethod
    def hyperparameters(cls, generator: random.Random, models: int) -> dict[str, list[float]]:
        return {"lr": [generator.random() for _ in range(models)]}

    @classmethod
    def check_equality(cls, config: JobConfig, steps: int = 3) -> dict[str, Any]:
        return {"passed": True, "tolerance": 0.0, "max_relative_error": 0.0, "steps": steps, "models": config.models}

    def setup(self) -> None:
        pass

    def step(self) -> None:
        self.steps += 1
        time.sleep(self.nap_s)

    def synchronize(self) -> None:
        pass

    def end_epoch(self) -> None:
        pass

    def losses(self) -> list[float]:
        return [1.0 / self.steps] * self.config.models

    def provenance(self) -> dict[str, Any]:
        return {"data": "none"}


@register("toy-nan")
class Nan(Toy):
    """The loss of the last model becomes NaN after the second epoch."""

    def losses(self) -> list[float]:
        losses = super().losses()
        return losses if self.steps <= 3 else [*losses[:-1], math.nan]


@register("toy-hungry")
class Hungry(Toy):
    """Each model reserves 0.4 of the memory a process may have: two fit in one process, three do not."""

    def setup(self) -> None:
        limit_bytes, _ = resource.getrlimit(resource.RLIMIT_DATA)
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self.memory = [mmap.mmap(-1, int(0.4 * limit_bytes), flags) for _ in range(self.config.models)]


@register("toy-crash")
class Crash(Toy):
    """Fails in its second step."""

    def step(self) -> None:
        super().step()
        if self.steps == 2:
            raise LookupError("no second step")


@register("toy-slow")
class Slow(Toy):
    """A step takes 0.2 s, and the marker file shows that one has begun."""

    nap_s = 0.2

    def step(self) -> None:
        if "TOY_MARKER" in os.environ:
            Path(os.environ["TOY_MARKER"]).write_text(str(os.getpid()))
        super().step()


@register("toy-settles")
class Settles(Toy):
    """Its steps run as all further ones will after the number that `TOY_SETTLES` says."""

    nap_s = 0.0001

    @property
    def settled(self) -> bool:
        return self.steps >= int(os.environ["TOY_SETTLES"])


@register("toy-unequal")
class Unequal(Toy):
    """Its fused array computes something else."""

    @classmethod
    def check_equality(cls, config: JobConfig, steps: int = 3) -> dict[str, Any]:
        return {"passed": False, "tolerance": 1e-3, "max_relative_error": 0.5, "steps": steps, "models": config.models}


@register("toy-noisy")
class Noisy(Toy):
    """Prints a megabyte."""

    def setup(self) -> None:
        for _ in range(1024):
            print("x" * 1023, flush=True)


def takes_turns(spec: WorkerSpec, siblings: Siblings) -> dict[str, Any]:
    """A worker that takes turns and does what each fate below says, instead of a job."""
    job = Toy(JobConfig())
    turns = TurnTaker(job, lambda steps: clock_for("cpu", 1, steps))
    for _ in turns.obey(siblings):
        pass
    write_samples(spec.folder, turns.samples(0))
    return {"items_per_step": job.items_per_step}


def oom(spec: WorkerSpec, siblings: Siblings) -> dict[str, Any]:
    raise MemoryError("out of memory")


def nan(spec: WorkerSpec, siblings: Siblings) -> dict[str, Any]:
    raise NotFinite("a loss is NaN")


def killed(spec: WorkerSpec, siblings: Siblings) -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def data(spec: WorkerSpec, siblings: Siblings) -> dict[str, Any]:
    raise BadData("the data ran out")
