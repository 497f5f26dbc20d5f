# SPDX-License-Identifier: MIT
"""The tables of the page "Which jobs, and why": what the jobs declare, and what was measured of them.

python docs/generate/jobs_page.py    writes them again, after a job or a measurement has changed
"""

import csv
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from dnnsuite import jobs
from dnnsuite.jobs import cards
from dnnsuite.suites import SUITES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/measure/jobs.md"
MEASURED = ROOT / "benchmarks/results/jobs_quick.csv"  # of benchmarks/training/broken_jobs.py, and ten seeds of each
_TABLE = re.compile(r"(?<=<!-- table: )(?P<name>[\w ]+) -->\n.*?(?=<!-- end -->)", re.DOTALL)


def written(page: str) -> str:
    """Return the page with every table between its marks, `<!-- table: NAME -->` and `<!-- end -->`, made anew."""
    return _TABLE.sub(lambda found: f"{found['name']} -->\n\n{TABLES[found['name']]()}\n", page)


def table(head: str, rows: Iterable[Sequence[object]]) -> str:
    """Return Markdown of a table; `head` has a bar between the columns."""
    lines = [f"| {head} |", "|" + "---|" * (head.count("|") + 1)]
    return "\n".join([*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows)]) + "\n"


def described(names: Iterable[str]) -> str:
    """The jobs, each with what it represents, its metric, whether it is an array, its data and its size."""
    rows = []
    for card in map(cards.card_of, names):
        alone = jobs.get(card["job"]).alone
        array = f"no: it {alone}" if alone else "yes"
        rows.append((f"`{card['job']}`", card["task"], card["metric"] or "loss", array, card["data"], card["model"]))
    return table("job | represents | metric | array | data | model", rows)


def others() -> list[str]:
    """Jobs that are in no suite."""
    return [card["job"] for card in cards.all_cards() if not any(card["job"] in SUITES[name] for name in SUITES)]


def measured() -> list[dict[str, str]]:
    """Rows of what was measured."""
    return list(csv.DictReader(MEASURED.read_text(encoding="utf-8").splitlines()))


def reached() -> str:
    """What sound models reach."""
    found = (
        (each["job"], cards.card_of(each["job"])["metric"], each["worst"], each["best"], f"{each['reached']} of 10",
         each["cpu_s"])
        for each in measured()
    )  # fmt: skip
    return table("job | target | worst of ten | best of ten | reached | s", found)


def broken() -> str:
    """What broken models reach."""
    ways = ("untrained", "wrong_sign", "shuffled")
    rows = ((each["job"], cards.card_of(each["job"])["metric"], *(each[way] for way in ways)) for each in measured())
    return table("job | target | no update | wrong sign | shuffled labels", rows)


def parameters() -> str:
    """Parameters of the published sizes, as a card says and as they are here."""
    rows, counted = [], {each["job"]: each["parameters"] for each in measured()}
    for card in map(cards.card_of, SUITES["2026"]):
        published = f"{card['parameters']:,g}" if card["parameters"] else "none published"
        rows.append((f"`{card['job']}`", ", ".join(card["references"]), published, counted[card["job"]]))
    return table("job | source | published | here", rows)


TABLES: dict[str, Callable[[], str]] = {
    "2026": lambda: described(SUITES["2026"]),
    "baselines": lambda: described(SUITES["baselines"]),
    "others": lambda: described(others()),
    "reached": reached,
    "broken": broken,
    "parameters": parameters,
}

if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
