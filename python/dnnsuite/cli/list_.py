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
                    "categories": _by_category(),
                }
            )
        )
        return 0
    wide = max(map(len, (*known, *fused, *ways)))
    for title, entries in (("jobs", known), ("workflows", fused), ("modes", ways)):
        print(f"{title}:")
        for name, description in entries.items():
            print(f"  {name:<{wide}} {description}")
    print("categories:")
    for category, names in _by_category().items():
        print(f"  {category:<{wide}} {' '.join(names)}")
    print("suites:")
    for name, members in SUITES.items():
        print(f"  {name:<{wide}} {' '.join(members)}")
    print("`dnnsuite show JOB` has a job's card: data, references, deviations from the original")
    return 0


def _by_category() -> dict[str, list[str]]:
    """Names of jobs by the category on their cards."""
    from ..jobs.cards import CATEGORIES, all_cards

    found = {
        category: sorted({card.job for card in all_cards() if card.category == category})
        for category in CATEGORIES
    }
    return {category: names for category, names in found.items() if names}
