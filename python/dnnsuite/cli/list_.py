# SPDX-License-Identifier: MIT
"""`dnnsuite list`: jobs, suites and modes."""

from __future__ import annotations

import json
import os
from typing import Annotated

import typer

from ._options import Json, Texts

__all__ = ["list_jobs"]


def list_jobs(
    plugin: Annotated[Texts, typer.Option(help="Module that registers more jobs; repeatable.")] = None,
    as_json: Json = False,
) -> int:
    """List the jobs, the suites of them, and the modes in which a workflow runs those that have a fused form."""
    from .. import jobs
    from .._runs.plugins import import_plugins
    from ..suites import SUITES
    from ..workflow import MODES

    import_plugins(plugin or [], [os.getcwd()])
    known = {name: jobs.get(name).description for name in jobs.names()}
    fused = {name: jobs.get(name, jobs.Job).description for name in jobs.names(jobs.Job)}
    ways = {mode.name: mode.description for mode in MODES.values()}
    if as_json:
        print(
            json.dumps(
                {
                    "jobs": known,
                    "workflows": fused,
                    "suites": {name: list(jobs) for name, jobs in SUITES.items()},
                    "modes": ways,
                }
            )
        )
        return 0
    for title, entries in (("jobs", known), ("workflows", fused), ("modes", ways)):
        print(f"{title}:")
        for name, description in entries.items():
            print(f"  {name:<18} {description}")
    print("suites:")
    for name, members in SUITES.items():
        print(f"  {name:<12} {' '.join(members)}")
    return 0
