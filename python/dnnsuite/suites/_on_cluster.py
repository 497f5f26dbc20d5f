# SPDX-License-Identifier: MIT
"""A suite on a cluster: each job of each run of it is a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .._files import write_text
from .._runs.folder import SUITE_FILE
from .._runs.reading import read_runs
from ..cluster import Part, run_parts
from ._records import summary_line, total_line
from ._run import run_suite
from ._settings import SuiteSettings
from ._suite import resolve


class SuiteOnCluster:
    """The parts of a suite, run after run: a cluster that is short of nodes finishes whole runs first.

    Args:
        suite, asked: see :func:`run_suite`; `copies` and the like are resolved on each node.
    """

    file = SUITE_FILE
    task = "dnnsuite.suites._on_cluster:run_part"

    def __init__(self, suite: str, asked: Mapping[str, Any]) -> None:
        settings = SuiteSettings.of(asked)
        self._suite = resolve(suite, asked)
        self.name = suite
        self.asked = {key: value for key, value in asked.items() if value is not None and key != "repeat"}
        where = str(Path(suite).resolve()) if Path(suite).is_file() else suite
        names = list(dict.fromkeys(entry.name for entry in self._suite.entries))
        own = {**asked, "exclude": None, "repeat": 1}
        self.parts = [
            Part(
                f"{job}-run{run:03d}",
                {"suite": where, "run": run, "asked": {**own, "names": [job], "seed": settings.seed + run}},
            )
            for run in range(settings.repeat)
            for job in names
        ]

    def ended(self, root: Path, part: Part, state: Mapping[str, Any] | None) -> str:
        """Add a line to the summary of the whole."""
        (job,) = part.order["asked"]["names"]
        entry = next(entry for entry in self._suite.entries if entry.name == job)
        runs = [run.record for run in read_runs(root / part.name / "runs")[0]]
        seconds = sum(repeat["seconds"] for repeat in (state or {}).get("repeats", ()))
        failed = sum(not run.ok for run in runs) if runs else 1
        line = summary_line(entry.index, self._suite.size, failed, max(len(runs), 1), seconds, entry.command)
        _add(root / "summary.txt", line)
        return f"run {part.order['run']}  {line}"

    def all_ended(self, root: Path, seconds: float) -> None:
        """Add the total to the summary of the whole."""
        _add(root / "summary.txt", total_line(seconds))


def _add(path: Path, line: str) -> None:
    write_text(path, f"{path.read_text(encoding='utf-8') if path.is_file() else ''}{line}\n")


def run_part(order: Mapping[str, Any], directory: Path, resume: bool) -> None:
    """Make a part of a suite in its directory, on its node."""
    run_suite(order["suite"], order["asked"], directory, resume=resume, quiet=True)


def run_on_cluster(
    suite: str,
    asked: Mapping[str, Any],
    out: Path,
    cluster: str,
    parameters: Mapping[str, Any],
    resume: bool = False,
    tell: Callable[[str], None] = print,
) -> bool:
    """Run a suite as tasks of a cluster, and wait for them. Returns True if every copy of every job succeeded.

    See :func:`dnnsuite.cluster.run_parts` for `out`, `cluster`, `parameters`, `tell` and exceptions, and
    :func:`run_suite` for the suite and its options.
    """
    return run_parts(SuiteOnCluster(suite, asked), out, cluster, parameters, resume, tell)
