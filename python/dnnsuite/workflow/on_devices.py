# SPDX-License-Identifier: MIT
"""A workflow on several devices of one machine: each makes all runs of some repeats, beside the others.

All points of a repeat are measured on one device, so that what is compared has run in the same place. What the points
are (modes, the Bs that fit, equality) is found on the first device before. Each device has a process that does there
what a workflow does alone; this one shows their progress, and draws the conclusions from the one record.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .._runs.folder import PlanFolder
from .._runs.progress import Progress
from .._runs.spec import WorkerSpec
from .._runs.starters import OnShares, Share, failed_share, shares_of
from .._runs.turn_workers import run_group
from ..errors import Error
from .settings import WorkflowSettings

_FOLDER = "devices"  # below the workflow's, with the output of each process
_TASK = "dnnsuite.workflow.device_task:task"
_FOREVER_S = 1e9
_LOOK_S = 0.5  # between two looks at what has ended


def run_on_devices(record: PlanFolder, settings: WorkflowSettings, progress: Progress) -> list[str]:
    """Make the runs of a workflow that are missing, on all its devices; return the problems met.

    Raises:
        Error: the process on a device failed; the message names the device.
    """
    shares = shares_of(settings.devices, settings.threads)
    for idle in shares[settings.repeats :]:
        progress.line(f"{idle.name} is idle: there are {settings.repeats} repeats to divide")
    shares = shares[: settings.repeats]
    progress.stage(f"modes and Bs on {shares[0].name}")
    (found,) = _run(record, settings, progress, [(shares[0], {"repeats": None})])
    record.state.update(PlanFolder.read(record.root, record.file).state)  # what it has found
    dealt = [(share, {"repeats": list(range(settings.repeats))[i :: len(shares)]}) for i, share in enumerate(shares)]
    progress.stage(f"{settings.repeats} repeats on {', '.join(share.name for share in shares)}")
    _run(record, settings, progress, dealt)
    return list(found["problems"])


def _run(
    record: PlanFolder, settings: WorkflowSettings, progress: Progress, parts: Sequence[tuple[Share, Mapping[str, Any]]]
) -> list[Mapping[str, Any]]:
    """Let each share do its part at the same time; return what their processes give back."""
    shares = [share for share, _ in parts]
    specs = []
    for share, details in parts:
        folder = record.scratch(_FOLDER, share.name.replace(":", "-"))
        told = {"root": str(record.root.resolve()), "file": record.file, "threads": share.threads, **details}
        specs.append(WorkerSpec(_TASK, str(folder), settings.job, {}, told, tuple(settings.plugins), (os.getcwd(),)))
    seen = _Seen(record, progress, [(share, Path(spec.directory)) for share, spec in zip(shares, specs, strict=True)])
    outcome = run_group(specs, [{} for _ in specs], _FOREVER_S, OnShares(shares), "end", seen.look)
    seen.look(at_once=True)
    if failed := failed_share(outcome, shares):
        share, why = failed
        folder = record.root / _FOLDER / share.name.replace(":", "-")
        raise Error(f"{share.name}: {why}; its output is in {folder}")
    return outcome.results


class _Seen:
    """The lines that processes on devices have written, passed on as one progress."""

    def __init__(self, record: PlanFolder, progress: Progress, folders: Sequence[tuple[Share, Path]]) -> None:
        self._record, self._progress, self._folders = record, progress, folders
        self._read = dict.fromkeys((folder for _, folder in folders), 0)
        self._last: dict[str, str] = {}
        self._looked_s = 0.0

    def look(self, at_once: bool = False) -> None:
        """Pass on what is new."""
        self._progress.tick()
        if not at_once and time.monotonic() - self._looked_s < _LOOK_S:
            return
        self._looked_s = time.monotonic()
        for share, folder in self._folders:
            path = folder / "stderr.txt"
            if not path.is_file():
                continue
            with path.open("rb") as file:
                file.seek(self._read[folder])
                new = file.read()
            whole = new[: new.rfind(b"\n") + 1]
            self._read[folder] += len(whole)
            for line in whole.decode(errors="replace").splitlines():
                self._progress.line(f"{share.name}  {line}")
                self._last[share.name] = line
        self._progress.now("; ".join(f"{name}: {line}" for name, line in self._last.items()), None)
