# SPDX-License-Identifier: MIT
"""A workflow in a directory: it is begun or continued there, and can be interrupted at any moment."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._runs import facts
from .._runs.folder import WORKFLOW_FILE, PlanFolder, opened, refuse_other_settings, stamp
from .._runs.interrupts import Interrupted, interruptible
from .._runs.progress import Progress
from .._runs.record import VERSION
from .._runs.spec import import_plugins
from . import modes, preflight
from .common_settings import options_by_name
from .on_devices import run_on_devices
from .partial import options_of
from .phases import Workflow, WorkflowReport
from .settings import OPTIONS, WorkflowSettings, resolve

if TYPE_CHECKING:
    from rich.console import Console


def sweep(
    job: str,
    asked: Mapping[str, Any],
    out: Path,
    resume: bool = False,
    console: Console | None = None,
    quiet: bool = False,
) -> WorkflowReport:
    """Run the workflow of a job into a directory.

    Args:
        job: name of a registered job.
        asked: the options given, for :func:`dnnsuite.workflow.settings.resolve`, and `allow_changed`.
        out: output directory, which is empty or absent; with `resume`, the one to continue.
        console: console to print progress on; standard error by default.
        quiet: print nothing.

    Raises:
        InvalidArgument, Unavailable, OutputError: as their messages say; finished runs are kept.
        Interrupted: a signal arrived; finished runs are kept, no worker is left.
    """
    job, asked = options_of(job, asked, defaults=not resume)
    allowed = asked.pop("allow_changed", None) or ()
    settings = None if resume else resolve(job, asked)
    if settings is not None:
        modes.unavailable(settings.modes, settings.device)  # refused if that is all of them
        preflight.check(settings, asked)
    with interruptible(), opened(out, WORKFLOW_FILE, resume) as record:
        if settings is None:
            settings = _continued(record, job, asked, allowed)
        else:
            begin(record, settings, asked)
        try:
            with Progress(console, quiet) as progress:
                workflow = Workflow(record, settings, progress)
                if not settings.devices:
                    return workflow.execute()
                workflow.problems += run_on_devices(record, settings, progress)
                return workflow.conclude()
        except Interrupted as interrupted:
            record.end_early(interrupted)
            raise


def run(job: str, out: str | Path, resume: bool = False, quiet: bool = False, **options: Any) -> WorkflowReport:
    """Measure the throughput of a job by mode and number of models, like the command `dnnsuite workflow JOB`.

    Args:
        job: name of a job that can be fused, or of a workflow such as `resnet_partially_fused`.
        out: output directory, which must be empty or absent; with `resume`, the directory to continue.
        resume: run what is missing in `out`.
        quiet: show no progress.
        options: options of the command, with underscores, for example `preset="quick", modes=["serial", "hfta"],
            plan=[1, 4]`. With `resume`, `allow_changed` names settings that may differ, which the records note.

    Returns:
        A table of all runs (rates in items per second), a summary with 95 % intervals, and the files written.

    Raises:
        InvalidArgument: an option is refused; the message names it.
        Interrupted: a signal arrived; finished runs are kept, and `resume` continues.
    """
    return sweep(job, options_by_name(options, OPTIONS | {"allow_changed"}), Path(out), resume, quiet=quiet)


def begin(record: PlanFolder, settings: WorkflowSettings, asked: Mapping[str, Any]) -> None:
    """Write the state of a workflow of which nothing has run."""
    record.identify(settings.identity())
    _set(record, settings, asked)
    record.save()


def _set(record: PlanFolder, settings: WorkflowSettings, asked: Mapping[str, Any]) -> None:
    record.state.update({
        "format": VERSION, "settings": settings.to_dict(), "environment": facts.environment(), "status": "running",
        "asked": {name: value for name, value in asked.items() if value is not None}, "created": stamp(),
        "unavailable": {}, "search": {}, "Bs": {}, "equality": {},
    })  # fmt: skip


def _continued(record: PlanFolder, job: str, asked: Mapping[str, Any], allowed: Sequence[str]) -> WorkflowSettings:
    """Return the settings of before with what may differ, if all else that is asked for and the machine agree."""
    from .. import jobs

    state = record.state
    given = {**state.get("asked", {}), **{name: value for name, value in asked.items() if value is not None}}
    import_plugins(given.get("plugins", ()), [os.getcwd()])
    was, name = state["settings"]["job"], jobs.get(job, swept=True).name
    odd = [f"the workflow is {job}, was {was}"] if name != was else []
    refuse_other_settings(record.root, odd + facts.changes(state["environment"], facts.environment()))
    settings = resolve(job, given)
    if record.identify(settings.identity(), allowed):  # what was found of modes, Bs and arrays may hold no more
        _set(record, settings, given)
    state["status"] = "running"
    return settings
