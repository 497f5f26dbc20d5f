# SPDX-License-Identifier: MIT
"""One point of a workflow (mode, precision, B) as worker processes, configured and confined."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._files import OutputError
from .._runs.group import Direct, GroupOutcome
from .._runs.limits import memory_share_bytes
from .._runs.monitor import Cores
from .._runs.spec import WorkerSpec
from .._runs.turn_session import wait_policy
from .._runs.turn_workers import TurnWorkers, run_group
from . import modes
from .modes import unfused_names
from .settings import WorkflowSettings

if TYPE_CHECKING:
    from ..jobs import JobConfig

# Between the seeds of two repeats: more than any B, so that no two models of a workflow share one.
_REPEAT_STRIDE = 100_003


@dataclass(frozen=True, order=True)
class Point:
    """Point to measure in a run: a mode, a precision, a number of models."""

    mode: str
    precision: str
    B: int

    def __str__(self) -> str:
        return f"{self.mode} {self.precision} B={self.B}"


def hyperparameters(job: str, seed: int, B: int) -> dict[str, list[float]]:
    """Draw values for models 0 … B-1, a list of B for each hyper-parameter.

    Each model draws from a generator of its own, so that model i is the same whatever B is.
    """
    from .. import jobs

    Job = jobs.get(job, swept=True)
    models = [Job.hyperparameters(random.Random(f"{seed}/{i}"), 1) for i in range(B)]
    return {name: [values[name][0] for values in models] for name in models[0]}


def replica_directories(directory: Path, replicas: int) -> list[Path]:
    """Folders of the workers: the run's directory, or idx0, idx1, … in it when there are several."""
    return [directory] if replicas == 1 else [directory / f"idx{i}" for i in range(replicas)]


class Launcher:
    """Launcher of one workflow's points.

    Args:
        cores: CPUs that neighbours leave free.
    """

    def __init__(self, settings: WorkflowSettings, cores: Cores) -> None:
        self.settings, self.cores = settings, cores

    def threads(self, mode: str, B: int) -> int:
        """Threads of each process: an equal share of all that were given, and no more than neighbours leave free."""
        threads = self.settings.threads
        if self.cores.shared:
            threads = min(threads, len(self.cores.cpus))
        return max(1, threads // modes.get(mode).processes(B))

    def configs(self, point: Point, repeat: int) -> list[JobConfig]:
        """Return the job configuration of each process."""
        from ..jobs import JobConfig

        settings, mode = self.settings, modes.get(point.mode)
        hyper = hyperparameters(settings.job, settings.seed, point.B)
        common = JobConfig(
            B=mode.width(point.B), device=settings.device, precision=point.precision,
            batch_size=settings.batch_size, seed=settings.seed + _REPEAT_STRIDE * repeat,
            data_seed=settings.seed, hyper=hyper, data=settings.data, dataroot=settings.dataroot,
            threads=self.threads(point.mode, point.B), options=dict(settings.options),
            unfused=unfused_names(settings.job, point.mode, settings.units),
        )  # fmt: skip
        if common.B:
            return [common]  # its model i starts from seed + i
        return [
            replace(common, seed=common.seed + i, hyper={name: [values[i]] for name, values in hyper.items()})
            for i in range(mode.processes(point.B))
        ]

    def environment(self, point: Point) -> dict[str, str]:
        """Variables every process of a point gets."""
        threads = str(self.threads(point.mode, point.B))
        chosen = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), threads)
        processes = modes.get(point.mode).processes(point.B)
        chosen |= wait_policy(int(threads), processes, self.cores)
        if self.settings.device == "cuda" and point.precision == "fp32":
            chosen["NVIDIA_TF32_OVERRIDE"] = "0"  # fp32 means fp32, as in the published measurements
        return chosen

    def run(
        self,
        task: str,
        point: Point,
        directory: Path,
        repeat: int = 0,
        details: Mapping[str, Any] | None = None,
        tick: Callable[[], None] = lambda: None,
    ) -> GroupOutcome:
        """Run one point in `directory`; the device is prepared before and put back after.

        Args:
            task: a function of :mod:`dnnsuite.workflow.tasks`; `details` is what it reads.

        Raises:
            Unavailable: the device cannot be prepared for the mode.
            OutputError: the directory cannot be written.
        """
        mode = modes.get(point.mode)
        processes = mode.processes(point.B)
        share = memory_share_bytes(processes)
        if too_many := refused(processes, share if self.settings.device == "cpu" else None):
            return GroupOutcome.not_started("oom", too_many)
        specs = self._specs(task, point, directory, repeat, details or {}, share)
        common = self.environment(point)
        # The monitor comes after the device is prepared: a GPU cannot be split while NVML is open.
        with mode.place[self.settings.device](processes) as environments:
            variables = [{**common, **own} for own in environments]
            return run_group(specs, variables, self.settings.timeout_s, Direct(share), "end", tick)

    def start(
        self,
        workers: TurnWorkers[Point],
        point: Point,
        directory: Path,
        repeat: int,
        details: Mapping[str, Any],
        environments: Sequence[Mapping[str, str]],
        share: float,
    ) -> None:
        """Start the workers of a point that takes turns, on a device that is prepared.

        Args:
            environments: variables of each process, from its mode.
            share: part of the available memory that they may reserve together.
        """
        common, allowed = self.environment(point), int(share * memory_share_bytes(len(environments)))
        specs = self._specs("rate", point, directory, repeat, details, allowed)
        workers.start(point, specs, [{**common, **own} for own in environments], Direct(allowed))

    def _specs(
        self, task: str, point: Point, directory: Path, repeat: int, details: Mapping[str, Any], allowed_bytes: int
    ) -> list[WorkerSpec]:
        """Return what each process of a point is told; make its directory."""
        configs = self.configs(point, repeat)
        return [
            WorkerSpec(
                f"dnnsuite.workflow.tasks:{task}",
                str(where),
                self.settings.job,
                config.to_dict(),
                details,
                tuple(self.settings.plugins),
                (os.getcwd(),),
                # CUDA maps more than it uses; there only the kernel's out-of-memory killer is steered.
                memory_limit_bytes=allowed_bytes if self.settings.device == "cpu" else None,
            )
            for config, where in zip(configs, _made(replica_directories(directory, len(configs))), strict=True)
        ]


# A worker that imports torch reserves about 230 MB before it makes its first tensor.
_MIN_SHARE_BYTES = 256 << 20
# Far above any useful number of replicas, far below what exhausts process ids.
MAX_PROCESSES = 1024


def refused(processes: int, share_bytes: int | None) -> str | None:
    """Return the reason not to start this number of processes, or None."""
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
