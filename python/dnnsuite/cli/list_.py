# SPDX-License-Identifier: MIT
"""`dnnsuite list`, `show` and `doctor`: jobs, suites and modes, the card of a job, and what works on this machine."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import jobs
from .._runs.spec import import_plugins
from .._shown import wrapped
from ..errors import InvalidArgument
from ._late import cards, results, suites, workflows
from ._options import Json, Text, Texts
from ._status import say


def list_jobs(plugin: Texts = None, as_json: Json = False) -> int:
    """List jobs, workflows, modes, categories and suites.

    Workflows are the jobs that can be swept; modes are the ways in which a workflow runs them.
    """
    import_plugins(plugin or [], [os.getcwd()])
    known = {name: str(jobs.get(name).description) for name in jobs.names()}
    fused = {name: known[name] for name in jobs.names(swept=True)}
    ways = {mode.name: mode.description for mode in workflows.MODES.values()}
    found: dict[str, Any] = {"jobs": known, "workflows": fused, "suites": suites.SUITES, "modes": ways}
    found["categories"] = _by_category()
    if as_json:
        print(json.dumps(found))
        return 0
    for name in ("categories", "suites"):
        found[name] = {own: " ".join(members) for own, members in found[name].items()}
    _print({name: found[name] for name in ("jobs", "workflows", "modes", "categories", "suites")})
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


def show(
    job: Annotated[Text, typer.Argument(help="A job; or with --bibtex an output of runs, for all jobs in it.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Print all cards, as one page of Markdown.")] = False,
    bibtex: Annotated[bool, "Print the references as BibTeX."] = False,
    as_json: Json = False,
) -> int:
    """Show a job's card: model, data, deviations, references.

    Each deviation from the original comes with its reason.
    """
    if every == (job is not None):
        raise InvalidArgument("name a job, or give --all; `dnnsuite list` lists the jobs")
    chosen = cards.all_cards() if job is None else _chosen(job, bibtex)
    if bibtex:
        print(cards.bibtex(key for card in chosen for key in card["references"]))
    elif as_json:
        print(json.dumps(chosen))
    elif job is None:
        print(cards.page(), end="")
    else:
        print("\n".join(_with_references(card) for card in chosen), end="")
    return 0


def _chosen(job: str, of_runs: bool) -> list[dict[str, Any]]:
    """Return the cards of a job, or of all jobs in a directory of runs."""
    if not of_runs or not Path(job).is_dir():
        return [cards.card_of(job)]
    found = []
    for name in sorted(set(results.load(job)["job"])):
        if cards.version_of(name) is None:
            say(f"{name} has no card")
        else:
            found.append(cards.card_of(name))
    return found


def _with_references(card: Mapping[str, Any]) -> str:
    used = (cards.references()[key] for key in card["references"])
    lines = (f"- {each['author']}: {each['title']}, {each['year']}. {each['url']}" for each in used)
    return f"{cards.shown(card)}\n## References\n\n" + "\n".join(lines) + "\n"


def doctor(as_json: Json = False) -> int:
    """Check what works on this machine, and what is missing.

    Every missing thing comes with what it needs.
    """
    from .. import doctor as checks

    report = checks.report()
    width = min(100, shutil.get_terminal_size((100, 0)).columns)
    print(json.dumps(checks.to_dict(report)) if as_json else checks.render(report, width))
    return checks.exit_code(report)
