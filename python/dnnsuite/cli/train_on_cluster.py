# SPDX-License-Identifier: MIT
"""`dnnsuite train --cluster`: one training run as a task of a cluster, over one node or several."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._shown import rate as shown_rate
from ._status import FAILED

if TYPE_CHECKING:
    import typer

    from ..cluster import Part

TASK_FILE = "task.json"
_OWN = ("cluster", "nodes", "gpus_per_node", "cluster_option", "out", "resume", "as_json")  # not the task's options


@dataclass(frozen=True)
class Nodes:
    """Resources of one run on a cluster.

    Attributes:
        count: number of nodes.
        gpus: GPUs of a node, one for each process; 0 for one process per node, on its CPUs.
        options: options of submitit's executor, as NAME=VALUE.
    """

    cluster: str = "slurm"
    count: int = 1
    gpus: int = 0
    options: Mapping[str, Any] | None = None

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters of submitit's executor."""
        from ..errors import InvalidArgument

        for name, value, least in (("--nodes", self.count, 1), ("--gpus-per-node", self.gpus, 0)):
            if value < least:
                raise InvalidArgument(f"{name} {value}: must be at least {least}")
        own: dict[str, Any] = {"nodes": self.count, "tasks_per_node": max(1, self.gpus)}
        if self.gpus:
            own["gpus_per_node"] = self.gpus
        # The end of one process is that of all: the others would wait for it.
        return {**own, "slurm_srun_args": ["--kill-on-bad-exit=1"], **(self.options or {})}

    @property
    def processes(self) -> int:
        """Number of processes on all nodes."""
        return int(self.parameters["nodes"]) * int(self.parameters["tasks_per_node"])


class TrainingOnCluster:
    """A plan of one part: the same command on each process of the run.

    Args:
        name: name of the run and of its folder.
        arguments: arguments of `dnnsuite train`, without those about the cluster.
        checkpoint: checkpoint to begin from.
    """

    file = TASK_FILE
    task = "dnnsuite.cli.train_on_cluster:run_part"

    def __init__(self, name: str, arguments: Sequence[str], checkpoint: str | None = None) -> None:
        from ..cluster import Part

        self.name = name
        self.asked = {"config": name}  # the run itself refuses settings that do not go on
        self.parts = [Part(name, {"arguments": list(arguments), "checkpoint": checkpoint})]

    def ended(self, root: Path, part: Part, state: Mapping[str, Any] | None) -> str:
        """Describe the run in a line: its result, or the checkpoint from which it can continue."""
        from .._runs.reading import RUN_FILE, read_run

        folder = root / part.name
        if state is not None:
            record = read_run(folder / RUN_FILE)
            rate = next((metric for metric in record.metrics if metric.name == "throughput"), None)
            told = f", {shown_rate(rate.value, rate.unit)}" if rate else ""
            reached = f"{record.details['epochs']} epochs on {record.processes} processes{told}"
            return f"{part.name}: {reached if record.ok else record.verdict.message}"
        kept = folder / "checkpoint.pt"
        where = f"the last checkpoint is {kept}" if kept.is_file() else "there is no checkpoint yet"
        return f"{part.name}: a process ended early; {where}; continue with --resume auto"

    def all_ended(self, root: Path, seconds: float) -> None:
        """Do nothing: a run has nothing left to do."""


def submit(
    name: str, arguments: Sequence[str], nodes: Nodes, batch_size: int, out: Path, resume: str, as_json: bool
) -> int:
    """Run a training run on a cluster and wait for it; return the exit status.

    Args:
        arguments: arguments of `dnnsuite train`; see :func:`command_line`.
        batch_size: samples of a batch, over all processes.
        resume: `never`, `auto` or a checkpoint to begin from.
    """
    from .._runs.folder import CLUSTER_FILE
    from ..cluster import run_parts
    from ..errors import InvalidArgument

    if batch_size % nodes.processes:
        least = batch_size // nodes.processes * nodes.processes or nodes.processes
        raise InvalidArgument(
            f"batch_size is {batch_size}, which cannot be divided among {nodes.processes} processes: use {least}"
        )
    checkpoint = None if resume in ("never", "auto") else str(Path(resume).resolve())
    go_on = resume == "auto" and (out / CLUSTER_FILE).is_file()
    plan = TrainingOnCluster(name, arguments, checkpoint)
    if go_on:  # a run that has ended goes on where more epochs are asked for, and else says so
        (out / name / TASK_FILE).unlink(missing_ok=True)

    def tell(line: str) -> None:
        print(line, file=sys.stderr if as_json else sys.stdout, flush=True)

    ok = run_parts(plan, out, nodes.cluster, nodes.parameters, go_on, tell)
    print(json.dumps({"out": str(out / name), "ok": ok}) if as_json else out / name)
    return 0 if ok else FAILED


def command_line(context: typer.Context, own: Sequence[str] = _OWN) -> list[str]:
    """Return the arguments of the command under way, without `own`: by default those that are of the cluster."""
    words: list[str] = []
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if parameter.name in own or value is None or value is False:
            continue
        many = list(value) if isinstance(value, (list, tuple)) else [value]
        if parameter.param_type_name == "argument":
            words += map(str, many)
        elif value is True:
            words.append(parameter.opts[0])
        else:
            words += [word for each in many for word in (parameter.opts[0], str(each))]
    return words


def run_part(order: Mapping[str, Any], directory: Path, resume: bool) -> None:
    """Train, as one of the run's processes; the first one writes how it ended.

    Raises:
        RuntimeError: the run did not end by itself; it can be continued.
    """
    import submitit

    from .._files import write_json

    place = submitit.JobEnvironment()
    go_on = "auto" if (directory / "training.json").is_file() else order["checkpoint"] or "auto"
    command = [sys.executable, "-m", "dnnsuite", "train", *order["arguments"]]
    command += ["--out", str(directory), "--resume", go_on]
    status = subprocess.call(command, env={**os.environ, **_place(place)})
    if status not in (0, FAILED):
        raise RuntimeError(f"process {place.global_rank} ended with status {status}")
    if place.global_rank == 0:
        write_json(directory / TASK_FILE, {"status": "failed" if status else "done"})


def _place(place: Any) -> dict[str, str]:
    """Variables of processes that submitit itself started on this machine; Slurm's own are read by the run."""
    path = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    if "OMP_NUM_THREADS" not in os.environ:  # the processes of a node share its CPUs
        beside = max(1, place.num_tasks // place.num_nodes)
        path["OMP_NUM_THREADS"] = str(max(1, len(os.sched_getaffinity(0)) // beside))
    if "SLURM_STEP_ID" in os.environ or place.num_tasks < 2:
        return path
    names = {"RANK": place.global_rank, "WORLD_SIZE": place.num_tasks, "LOCAL_RANK": place.local_rank}
    port = 20000 + int("".join(filter(str.isdigit, str(place.job_id))) or 0) % 20000
    return {
        **path,
        **{name: str(value) for name, value in names.items()},
        "LOCAL_WORLD_SIZE": str(place.num_tasks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
