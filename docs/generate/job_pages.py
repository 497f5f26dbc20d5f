# SPDX-License-Identifier: MIT
"""Pages of the jobs, from their cards."""

from typing import Any

from dnnsuite.jobs import cards


def pages() -> dict[str, str]:
    """Markdown of each job, by its name."""
    return {card["job"]: page(card) for card in cards.all_cards()}


def page(card: dict[str, Any]) -> str:
    """The card of a job, with its references."""
    known = (cards.references()[key] for key in card["references"])
    sources = "\n".join(f"- {each['author']}: [{each['title']}]({each['url']}), {each['year']}" for each in known)
    return f"{cards.shown(card)}\n## References\n\n{sources}\n"


def index() -> str:
    """Table of the jobs by category."""
    parts = [
        "# Jobs\n\n`dnnsuite run JOB` takes every job; most also train as an array (`dnnsuite workflow JOB`, `tune`), "
        "and `dnnsuite train JOB` to an end. `dnnsuite show JOB` prints its card, `--bibtex` what to cite.\n"
    ]
    for category in cards.CATEGORIES:
        rows = [
            f"| [{card['job']}]({card['job']}.md) | {card['task']} | {card['model']} | {card['unit']} |"
            for card in cards.all_cards()
            if card["category"] == category
        ]
        if rows:
            parts += [f"\n## {category[0].upper()}{category[1:]}\n", "| job | task | model | unit |"]
            parts += ["|---|---|---|---|", *rows]
    return "\n".join(parts) + "\n"
