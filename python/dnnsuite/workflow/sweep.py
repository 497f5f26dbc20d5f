# SPDX-License-Identifier: MIT
"""A workflow begun or continued in a directory, and interruptible at any moment."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import host
from .._files import OutputError
from .._runs.folder import Record, opened, stamp
from .._runs.interrupts import Interrupted, interruptible
from .._runs.plugins import import_plugins
from ..errors import InvalidArgument
from .phases import Report, Workflow
from .progress import Progress
from .protocol import WORKFLOW_FILE
from .settings import Settings, differences, resolve

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["run", "sweep"]

# What must be as it was for runs of two processes to be compared.
_SAME_VERSIONS = (("versions", "dnnsuite"), ("versions", "torch"))
_SAME_MACHINE = (("machine", "cpu_model"), ("machine", "cpus"), ("machine", "gpus"))


def sweep(
    job: str, asked: Mapping[str, Any], out: Path, resume: bool = False, console: Console | None = None,
    quiet: bool = False,
) -> Report:  # fmt: skip
    """Run the workflow of a job into a directory.

    Args:
        job: name of a registered job.
        asked: the options given, as :func:`dnnsuite.workflow.settings.resolve` takes them.
        out: output directory; empty or absent, or with `resume` one to continue.
        console: where progress is told; standard error by default.
        quiet: tell nothing.

    Raises:
        InvalidArgument, Unavailable, OutputError: as their messages say; finished runs are kept.
        Interrupted: a signal came; finished runs are kept, no worker is left.
    """
    from rich.console import Console as RichConsole

    settings = None if resume else resolve(job, asked)
    with interruptible(), opened(out, WORKFLOW_FILE, resume) as record:
        if settings is None:
            settings = _continued(record, job, asked)
        else:
            _begin(record, settings)
        workflow = None
        try:
            with Progress(console or RichConsole(stderr=True), quiet) as progress:
                workflow = Workflow(record, settings, progress)
                return workflow.execute()
        except Interrupted as interrupted:
            record.drop_unfinished()
            record.state["status"] = f"interrupted by {interrupted}"
            with suppress(OutputError):
                record.save()
            raise


def run(job: str, out: str | Path, resume: bool = False, quiet: bool = False, **options: Any) -> Report:
    """The same as `dnnsuite workflow JOB`, from Python; `options` are the command's, with underscores."""
    return sweep(job, options, Path(out), resume, quiet=quiet)


def _environment() -> dict[str, Any]:
    return json.loads(json.dumps({"machine": host.describe(), "versions": host.versions()}))


def _begin(record: Record, settings: Settings) -> None:
    record.state.update({
        "format": 1, "settings": settings.to_dict(), "environment": _environment(), "status": "running",
        "created": stamp(), "unavailable": {}, "search": {}, "Bs": {}, "equality": {},
    })  # fmt: skip
    record.save()


def _continued(record: Record, job: str, asked: Mapping[str, Any]) -> Settings:
    """The recorded settings, if what is asked for now and the machine agree with them."""
    settings = Settings.from_dict(record.state["settings"])
    import_plugins(settings.plugins, [os.getcwd()])
    odd = (
        [f"the workflow is {job}, was {settings.job}"]
        if job != settings.job
        else differences(settings, asked)
    )
    now, then = _environment(), record.state["environment"]
    for group, name in (*_SAME_VERSIONS, *_SAME_MACHINE):
        value, before = now[group].get(name), then[group].get(name)
        if value != before:
            odd.append(f"{name} is {value}, was {before}")
    if odd:
        raise InvalidArgument(f"--resume: {record.root} was made with other settings: {'; '.join(odd)}; "
                              "give the same options (or none), or choose another --out")  # fmt: skip
    record.state["status"] = "running"
    return settings
