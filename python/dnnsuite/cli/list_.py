# SPDX-License-Identifier: MIT
"""`dnnsuite list`: jobs, suites and modes."""

from __future__ import annotations

import json
import os
import shutil
from typing import Annotated

import typer

from .._shown import wrapped
from ._options import Json, Texts


def list_jobs(plugin: Annotated[Texts, typer.Option()] = None, as_json: Json = False) -> int:
    """List jobs, workflows, modes, categories and suites.

    Workflows are the jobs that can be swept; modes are the ways in which a workflow runs them.
    """
    from .. import jobs
    from .._runs.spec import import_plugins
    from ..suites import SUITES
    from ..workflow import MODES

    import_plugins(plugin or [], [os.getcwd()])
    known = {name: str(jobs.get(name).description) for name in jobs.names()}
    fused = {name: known[name] for name in jobs.names(swept=True)}
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
    categories = {category: " ".join(names) for category, names in _by_category().items()}
    suites = {name: " ".join(members) for name, members in SUITES.items()}
    _print({"jobs": known, "workflows": fused, "modes": ways, "categories": categories, "suites": suites})
    print("`dnnsuite show JOB` has a job's card: data, references, deviations from the original")
    return 0


def _print(sections: dict[str, dict[str, str]]) -> None:
    """Print each section, names in one column and descriptions, wrapped, in another."""
    column = 2 + max(len(name) for entries in sections.values() for name in entries) + 2
    width = max(column + 40, min(100, shutil.get_terminal_size((100, 24)).columns))
    for title, entries in sections.items():
        print(f"{title}:")
        for name, text in entries.items():
            print("\n".join(wrapped(text, f"  {name}".ljust(column), width=width)))


def _by_category() -> dict[str, list[str]]:
    """Names of jobs by the category on their cards."""
    from ..jobs.cards import CATEGORIES, all_cards

    cards = all_cards()
    found = {name: [card["job"] for card in cards if card["category"] == name] for name in CATEGORIES}
    return {category: names for category, names in found.items() if names}
