# SPDX-License-Identifier: MIT
"""A workflow in a directory: it is begun or continued there, and can be interrupted at any moment.

On several devices of one machine each makes all runs of some repeats, beside the others. All points of a repeat are
measured on one device, so that what is compared has run in the same place. What the points are (modes, the Bs that fit,
equality) is found on the first device before. Each device has a process that does there what a workflow does alone;
this one shows their progress, and draws the conclusions from the one record.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._runs import facts
from .._runs.folder import WORKFLOW_FILE, PlanFolder, opened, refuse_other_settings, stamp
from .._runs.interrupts import Interrupted, interruptible
from .._runs.progress import Progress
from .._runs.record import VERSION
from .._runs.spec import WorkerSpec, import_plugins
from .._runs.starters import OnShares, Share, failed_share, shares_of
from .._runs.turn_workers import run_group
from .._runs.worker import Siblings
from ..errors import Error
from . import modes, plan
from .common_settings import options_by_name
from .modes import options_of
from .phases import Workflow, WorkflowReport
from .settings import OPTIONS, WorkflowSettings, resolve

if TYPE_CHECKING:
    from rich.console import Console


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


_FOLDER = "devices"  # below the workflow's, with the output of each process
_TASK = "dnnsuite.workflow.sweep:task"
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
    (found,) = _on_shares(record, settings, progress, [(shares[0], {"repeats": None})])
    record.state.update(PlanFolder.read(record.root, record.file).state)  # what it has found
    dealt = [(share, {"repeats": list(range(settings.repeats))[i :: len(shares)]}) for i, share in enumerate(shares)]
    progress.stage(f"{settings.repeats} repeats on {', '.join(share.name for share in shares)}")
    _on_shares(record, settings, progress, dealt)
    return list(found["problems"])


def _on_shares(
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
        plan.check(settings, asked)
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
