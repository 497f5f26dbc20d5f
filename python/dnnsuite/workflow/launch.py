# SPDX-License-Identifier: MIT
"""One point of a workflow (mode, precision, B) as worker processes, configured and confined."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._files import OutputError
from .._runs.limits import memory_share_bytes
from . import modes
from .processes import Outcome, run_group
from .settings import Settings

__all__ = ["MAX_PROCESSES", "Launcher", "Point", "hyperparameters", "replica_directories"]

# Between the seeds of two repeats: more than any B, so that no two models of a workflow share one.
_REPEAT_STRIDE = 100_003


@dataclass(frozen=True, order=True)
class Point:
    """What one run measures."""

    mode: str
    precision: str
    B: int

    def __str__(self) -> str:
        return f"{self.mode} {self.precision} B={self.B}"


def hyperparameters(job: str, seed: int, B: int) -> dict[str, list[float]]:
    """Random values for models 0 … B-1, a list of B for each hyper-parameter.

    Each model draws from a generator of its own, so that model i is the same whatever B is.
    """
    from .. import jobs

    Job = jobs.get(job, jobs.Job)
    models = [Job.hyperparameters(random.Random(f"{seed}/{i}"), 1) for i in range(B)]
    return {name: [values[name][0] for values in models] for name in models[0]}


def replica_directories(directory: Path, replicas: int) -> list[Path]:
    """Where the workers write: the run's directory, or idx0, idx1, … in it when there are several."""
    return [directory] if replicas == 1 else [directory / f"idx{i}" for i in range(replicas)]


class Launcher:
    """Runs points of one workflow."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def threads(self, mode: str, B: int) -> int:
        """Threads of each process: an equal share of all that were given."""
        return max(1, self.settings.threads // modes.get(mode).processes(B))

    def configs(self, point: Point, repeat: int) -> list[dict[str, Any]]:
        """The job configuration of each process, as a dictionary."""
        settings, mode = self.settings, modes.get(point.mode)
        width, processes = mode.width(point.B), mode.processes(point.B)
        hyper = hyperparameters(settings.job, settings.seed, point.B)
        seed = settings.seed + _REPEAT_STRIDE * repeat
        common = {
            "B": width, "device": settings.device, "precision": point.precision,
            "batch_size": settings.batch_size, "data": settings.data, "dataroot": settings.dataroot,
            "threads": self.threads(point.mode, point.B),
            "data_seed": settings.seed, "options": {},
        }  # fmt: skip
        if width:
            return [{**common, "seed": seed, "hyper": hyper}]  # its model i starts from seed + i
        return [
            {**common, "seed": seed + i, "hyper": {name: [values[i]] for name, values in hyper.items()}}
            for i in range(processes)
        ]

    def environment(self, point: Point) -> dict[str, str]:
        """Variables every process of a point gets."""
        threads = str(self.threads(point.mode, point.B))
        chosen = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), threads)
        if self.settings.device == "cuda" and point.precision == "fp32":
            chosen["NVIDIA_TF32_OVERRIDE"] = "0"  # fp32 means fp32, as in the published measurements
        return chosen

    def run(
        self,
        kind: str,
        point: Point,
        directory: Path,
        repeat: int = 0,
        epochs: int = 1,
        iters_per_epoch: int = 1,
        tick: Callable[[], None] = lambda: None,
    ) -> Outcome:
        """Run one point in `directory`; the device is prepared before and put back after.

        Raises:
            Unavailable: the device cannot be prepared for the mode.
            OutputError: the directory cannot be written.
        """
        settings, mode = self.settings, modes.get(point.mode)
        processes = mode.processes(point.B)
        on_cpu = settings.device == "cpu"
        share = memory_share_bytes(processes)
        if too_many := _refuse(processes, share if on_cpu else None):
            return Outcome("oom", too_many, [], 0.0)
        configs = self.configs(point, repeat)
        specs = [
            {
                "kind": kind, "job": settings.job, "plugins": settings.plugins, "sys_path": [os.getcwd()],
                "config": config, "epochs": epochs, "iters_per_epoch": iters_per_epoch,
                "steps": settings.equality_steps, "directory": str(where),
                # CUDA maps more than it uses; there only the kernel's out-of-memory killer is steered.
                "memory_limit_bytes": share if on_cpu else None, "cuda_memory_fraction": None,
            }
            for config, where in zip(configs, _made(replica_directories(directory, processes)), strict=True)
        ]  # fmt: skip
        common = self.environment(point)
        with mode.place[settings.device](processes) as environments:
            return run_group(specs, [{**common, **own} for own in environments], settings.timeout_s, tick)


# A worker that imports torch reserves about 230 MB before it makes its first tensor.
_MIN_SHARE_BYTES = 256 << 20
# Far above any useful number of replicas, far below what exhausts process ids.
MAX_PROCESSES = 1024


def _refuse(processes: int, share_bytes: int | None) -> str | None:
    """Why so many processes are not even started."""
    if processes > MAX_PROCESSES:
        return f"{processes} processes are more than the {MAX_PROCESSES} allowed"
    if share_bytes is not None and share_bytes < _MIN_SHARE_BYTES:
        needed = f"one needs at least {_MIN_SHARE_BYTES >> 20}"
        return f"{processes} processes would have {share_bytes >> 20} MiB each; {needed}"
    return None


def _made(directories: list[Path]) -> list[Path]:
    try:
        for directory in directories:
            directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write {directories[0]}: {error.strerror}") from error
    return directories
