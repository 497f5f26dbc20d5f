# SPDX-License-Identifier: MIT
"""The part of a workflow that the process on one device does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from .._runs.folder import PlanFolder
from .._runs.interrupts import interruptible
from .._runs.progress import Progress
from .._runs.spec import WorkerSpec
from .._runs.worker import Siblings
from .phases import Workflow
from .settings import WorkflowSettings


class _Part(PlanFolder):
    """The folder of a plan in a process that makes some of its runs: the plan's state is another's."""

    def save(self) -> None:
        """Leave the file as it is."""


def task(spec: WorkerSpec, siblings: Siblings) -> dict[str, Any]:
    """Find what is to be measured, or measure some repeats of it: a task of a worker's process."""
    details = spec.details
    repeats = details["repeats"]
    kind = PlanFolder if repeats is None else _Part
    record = kind.read(Path(details["root"]), details["file"])
    settings = replace(WorkflowSettings.from_dict(record.state["settings"]), threads=details["threads"])
    siblings.wait()
    with interruptible(), Progress() as progress:
        workflow = Workflow(record, settings, progress)
        if repeats is None:
            workflow.find_modes()
            workflow.find_Bs()
            workflow.check_equality()
        else:
            workflow.repeats = repeats
            workflow.run_all()
    return {"problems": workflow.problems}
