# SPDX-License-Identifier: MIT
"""`dnnsuite tune --cluster`: workers that share one search, as the tasks of a cluster's job array."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._files import read_json
from ..errors import Error, InvalidArgument

if TYPE_CHECKING:
    from ..cluster import Part

TASK_FILE = "task.json"
COMPARISON_FILE = "comparison.json"
#: Options of the whole, which its workers are not given.
OWN = ("cluster", "workers", "cluster_option", "out", "resume", "share", "as_json", "quiet")


class TuningOnCluster:
    """A plan whose parts are workers: the same command on each, in one directory.

    Args:
        job: name for lines on the screen.
        arguments: arguments of `dnnsuite tune`, without `OWN`.
        workers: number of tasks.
    """

    file = TASK_FILE
    task = "dnnsuite.cli.app:tune_as_part"

    def __init__(self, job: str, arguments: Sequence[str], workers: int) -> None:
        from ..cluster import Part

        if workers < 1:
            raise InvalidArgument(f"--workers {workers}: must be at least 1")
        self.name = f"tune-{job}"
        self.asked = {"arguments": list(arguments)}
        self.parts = [
            Part(f"worker-{number:03d}", {"arguments": list(arguments), "workers": workers})
            for number in range(workers)
        ]

    def ended(self, root: Path, part: Part, state: Mapping[str, Any] | None) -> str:
        """Describe a worker's end in a line."""
        return f"{part.name}: {'left; the others continue its trials' if state is None else 'done'}"

    def all_ended(self, root: Path, seconds: float) -> None:
        """Do nothing: each worker has written the tables."""


def run_part(main: Callable[[list[str]], None], order: Mapping[str, Any], directory: Path) -> None:
    """Take part in the search, on a node.

    Args:
        main: the command `dnnsuite`.
        directory: directory of this worker, inside that of the search.

    Raises:
        RuntimeError: the command ended early; the line above has its reason.
    """
    from .._files import write_json

    directory.mkdir(parents=True, exist_ok=True)
    arguments = [*order["arguments"], *_threads(order), "--quiet", "--share", "--out", str(directory.parent)]
    try:
        main(["tune", *arguments])
    except SystemExit as ended:
        if ended.code:
            raise RuntimeError(f"dnnsuite tune ended with status {ended.code}") from None
    write_json(directory / TASK_FILE, {"status": "done"})


def _threads(order: Mapping[str, Any]) -> list[str]:
    """Threads of a worker among others on one machine; Slurm gives each CPUs of its own."""
    if "--threads" in order["arguments"] or "SLURM_JOB_ID" in os.environ:
        return []
    return ["--threads", str(max(1, len(os.sched_getaffinity(0)) // order["workers"]))]


def search_on_cluster(
    plan: TuningOnCluster, out: Path, cluster: str, parameters: Mapping[str, Any], resume: bool, as_json: bool
) -> Mapping[str, Any]:
    """Submit the workers and wait for them; return what they found, as `comparison.json` has it.

    Raises:
        Error: no worker came to the end.
    """
    from ..cluster import run_parts

    def tell(line: str) -> None:
        print(line, file=sys.stderr if as_json else sys.stdout, flush=True)

    run_parts(plan, out, cluster, parameters, resume, tell)
    try:
        found: Mapping[str, Any] = read_json(out / COMPARISON_FILE)
    except Error:
        raise Error(
            f"no worker finished the search in {out}; their output is below {out.parent}/.{out.name}-tasks; "
            "continue with --resume"
        ) from None
    return found
