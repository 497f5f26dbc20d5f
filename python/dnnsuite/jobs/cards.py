# SPDX-License-Identifier: MIT
"""Cards of the jobs: task, category, model, data, references, deviations from the original with the reason, changes.

A card is a Markdown file in the folder `cards`; `references.bib` beside them has what they refer to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..errors import InvalidArgument, did_you_mean, some_of
from ._job import get
from .workload import BASELINES

CATEGORIES = (
    "image classification", "object detection", "translation", "language modelling", "recommendation",
    "reinforcement learning", "generative", "super-resolution", "style transfer", "regression", "sequence",
    "point clouds", "speech", "graphs", "data loading",
)  # fmt: skip
_FOLDER = Path(__file__).with_name("cards")
_FIELD = re.compile(r"- (?P<name>[a-z ]+): (?P<value>.+)")
_ENTRY = re.compile(r"@\w+\{(?P<key>\w+),\n(?P<fields>.*?)\n\}", re.DOTALL)
_BIB_FIELD = re.compile(r"  (?P<name>\w+) = \{(?P<value>.*)\},")


@dataclass(frozen=True)
class Card:
    """A job's card.

    Attributes:
        data: a data set of `dnnsuite data`, or `generated`.
        references: keys in `references.bib`.
        version: counts changes; one that changes rates is marked `(numbers)` in `changes`, newest first. A card of
            version 1 lists none.
        deviations: deviations from the original, each with its reason.
        text: the card as it is written.
    """

    job: str
    category: str
    task: str
    model: str
    data: str
    optimizer: str
    references: tuple[str, ...]
    version: int
    deviations: tuple[str, ...]
    changes: tuple[str, ...]
    text: str

    @property
    def unit(self) -> str:
        """The items that the job's rates count."""
        unit: str = get(self.job).unit
        return unit

    @property
    def batch_size(self) -> int:
        """Batch size of the original's protocol."""
        kind = get(self.job)
        presets = getattr(getattr(kind, "workload", None), "presets", ())
        return int(kind.settings("default" if BASELINES in presets else "paper")["batch_size"])

    def shown(self) -> str:
        """The card with what the job itself says."""
        own = f"- data: {self.data}\n"
        return self.text.replace(own, f"{own}- unit: {self.unit}\n- batch size: {self.batch_size}\n", 1)


@cache
def all_cards() -> tuple[Card, ...]:
    """Return every card, ordered by the name of its file."""
    return tuple(_read(path) for path in sorted(_FOLDER.glob("*.md")))


def card_of(job: str) -> Card:
    """Return the card of a job.

    Raises:
        InvalidArgument: there is none.
    """
    known = {card.job: card for card in all_cards()}
    if job not in known:
        available = some_of(known, "`dnnsuite list`")
        raise InvalidArgument(f"no job {job!r} with a card{did_you_mean(job, known)}; available: {available}")
    return known[job]


def _read(path: Path) -> Card:
    text = path.read_text(encoding="utf-8")
    head, *sections = re.split(r"\n## ", text)
    values = {found["name"]: found["value"] for found in _FIELD.finditer(head)}
    lists = {
        title: tuple(re.findall(r"^- (.+)$", body, re.MULTILINE))
        for title, _, body in (section.partition("\n") for section in sections)
    }
    changes = lists.get("Changes", ("1: first version",))
    return Card(
        job=path.stem,
        category=values["category"],
        task=values["task"],
        model=values["model"],
        data=values["data"],
        optimizer=values["optimizer"],
        references=tuple(values["references"].split(", ")),
        version=len(changes),
        deviations=lists["Deviations from the original"],
        changes=changes,
        text=text,
    )


@cache
def references() -> Mapping[str, Mapping[str, str]]:
    """Fields of each reference, by its key."""
    text = (_FOLDER / "references.bib").read_text(encoding="utf-8")
    return {
        found["key"]: {field["name"]: field["value"] for field in _BIB_FIELD.finditer(found["fields"])}
        for found in _ENTRY.finditer(text)
    }


def bibtex(keys: Iterable[str]) -> str:
    """BibTeX of references, each once, in the order of `references.bib`."""
    text = (_FOLDER / "references.bib").read_text(encoding="utf-8")
    wanted = set(keys)
    return "\n\n".join(found[0] for found in _ENTRY.finditer(text) if found["key"] in wanted)


def page() -> str:
    """All cards as one page of Markdown, by category."""
    parts = [
        "# Jobs\n\n`run` takes every job; most also train as arrays. `dnnsuite show JOB --bibtex` "
        "prints what a job refers to.\n"
    ]
    for category in CATEGORIES:
        parts.append(f"\n## {category[0].upper()}{category[1:]}\n")
        for card in (each for each in all_cards() if each.category == category):
            title, _, rest = card.shown().partition("\n")
            parts.append(f"\n### {title.removeprefix('# ')}\n" + rest.replace("\n## ", "\n#### "))
    return "".join(parts)
