# SPDX-License-Identifier: MIT
"""Pages of the jobs, from their cards."""

from dnnsuite.jobs import cards


def pages() -> dict[str, str]:
    """Markdown of each job, by its name."""
    return {name: page(name) for name in sorted({card.job for card in cards.all_cards()})}


def page(job: str) -> str:
    """Both cards of a job that is one of a suite and one of a workflow, else its card."""
    return f"# {job}\n\n" + "\n".join(_section(card) for card in cards.cards_of(job))


def index() -> str:
    """Table of the jobs by category."""
    parts = [
        "# Jobs\n\n`dnnsuite run JOB` takes every job; a *fused* one also trains as an array (`dnnsuite workflow JOB`, "
        "`tune`), and `dnnsuite train JOB` to an end. `dnnsuite show JOB` prints its card, `--bibtex` what to cite.\n"
    ]
    for category in cards.CATEGORIES:
        of_category = [card for card in cards.all_cards() if card.category == category]
        rows = (
            f"| [{card.job}]({card.job}.md) | {card.family} | {card.task} | {card.model} | {card.unit} |"
            for card in of_category
        )
        if of_category:
            parts += [f"\n## {category[0].upper()}{category[1:]}\n", "| job | family | task | model | unit |"]
            parts += ["|---|---|---|---|---|", *rows]
    return "\n".join(parts) + "\n"


def _section(card: cards.Card) -> str:
    body = card.text.partition("\n")[2].strip().replace("\n## ", "\n### ")
    known = (cards.references()[key] for key in card.references)
    sources = "\n".join(f"- {each['author']}: [{each['title']}]({each['url']}), {each['year']}" for each in known)
    return f"## {card.family.capitalize()} job\n\n{body}\n\n### References\n\n{sources}\n"
