# SPDX-License-Identifier: MIT
"""`dnnsuite show JOB`: the card of a job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import InvalidArgument
from ._options import Json, Text
from ._status import say


def show(
    job: Annotated[Text, typer.Argument(help="A job; or with --bibtex an output of runs, for all jobs in it.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Print all cards, as one page of Markdown.")] = False,
    bibtex: Annotated[bool, "Print the references as BibTeX."] = False,
    as_json: Json = False,
) -> int:
    """Show a job's card: model, data, deviations, references.

    Each deviation from the original comes with its reason.
    """
    from ..jobs import cards

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
    from .. import results
    from ..jobs import cards

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
    from ..jobs import cards

    used = (cards.references()[key] for key in card["references"])
    lines = (f"- {each['author']}: {each['title']}, {each['year']}. {each['url']}" for each in used)
    return f"{cards.shown(card)}\n## References\n\n" + "\n".join(lines) + "\n"
