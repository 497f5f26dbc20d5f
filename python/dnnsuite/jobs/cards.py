# SPDX-License-Identifier: MIT
"""Cards of the jobs: what each declares, written down for a reader; what they refer to is in `references.bib`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ..data.catalogue import DATA_SETS
from ..errors import InvalidArgument, did_you_mean, some_of
from ._job import get, names
from .workload import BASELINES, Rate, Workload

CATEGORIES = (
    "image classification", "object detection", "translation", "language modelling", "recommendation",
    "reinforcement learning", "generative", "super-resolution", "style transfer", "regression", "sequence",
    "point clouds", "speech", "graphs", "data loading",
)  # fmt: skip
# What several cards say.
FROM_MEMORY = (
    "batches come from memory in the timed loop: the computation is measured; a second rate has the loader that the "
    "original timed"
)
ON_EVERY_DEVICE = (
    "one process for each device (DDP) instead of nn.DataParallel, which is deprecated; the batch size is that of each"
)
REAL_PHOTOGRAPHS = "real photographs before noise; a second rate with the loader in the loop (numbers)"
_BIBLIOGRAPHY = Path(__file__).with_name("references.bib")
_ENTRY = re.compile(r"@\w+\{(?P<key>\w+),\n(?P<fields>.*?)\n\}", re.DOTALL)
_BIB_FIELD = re.compile(r"  (?P<name>\w+) = \{(?P<value>.*)\},")


def all_cards() -> list[dict[str, Any]]:
    """Return the card of every job that has one, ordered by name."""
    return [card_of(name) for name in names() if get(name).card]


def card_of(job: str) -> dict[str, Any]:
    """Return the card of a job: plain values by name.

    Raises:
        InvalidArgument: there is no such job, or it has no card.
    """
    if job not in names() or (card := get(job).card) is None:
        known = [name for name in names() if get(name).card]
        available = some_of(known, "`dnnsuite list`")
        raise InvalidArgument(f"no job {job!r} with a card{did_you_mean(job, known)}; available: {available}")
    kind, workload = get(job), getattr(get(job), "workload", None)
    presets = getattr(workload, "presets", ())
    return {
        "job": job,
        "category": card.category,
        "task": kind.description,
        "model": card.model,
        "data": next((data.name for data in DATA_SETS.values() if job in data.jobs), "generated"),
        "unit": kind.unit,
        "batch_size": kind.settings("default" if BASELINES in presets else "paper")["batch_size"],
        "optimizer": optimizer_of(workload) if workload else "none",
        "metric": metric_of(workload),
        "references": list(card.source),
        "version": version_of(job),
        "deviations": list(card.about),
        "changes": list(card.changes),
        "parameters": card.parameters,
    }


def version_of(job: str) -> int | None:
    """Version of a job, which counts its changes; None for a job without a card, which may be a user's own."""
    card = get(job).card if job in names() else None
    return 1 + len(card.changes) if card else None


def metric_of(workload: Workload | None) -> str:
    """Return the measure on held-out data, with the target of the preset quick if there is one; "" without a metric."""
    if workload is None or workload.metric is None:
        return ""
    metric = workload.metric
    target, sign = metric.target.get("quick"), "≥" if metric.better == "more" else "≤"
    return metric.name.replace("_", " ") + (f" {sign} {target:g}" if target is not None else "")


def optimizer_of(workload: Workload) -> str:
    """Optimizers with their arguments, the schedule, and where gradients are clipped."""
    made = [group.optimizer for group in workload.groups()] + ([workload.schedule] if workload.schedule else [])
    parts = [f"{each.name} ({_values(each.filled(workload.hyper))})" for each in made]
    if isinstance(rate := workload.rate, Rate):
        rise = f"{rate.warmup:.0%} warm-up, " if rate.warmup else ""
        parts.append(
            f"{rise}then constant to {rate.constant:.0%} of the steps, then a {rate.shape} fall to {rate.end:g}"
        )
    clip = workload.clip(workload.options)
    return ", ".join([*dict.fromkeys(parts), *([f"norm clipped at {clip:g}"] if clip else [])])


def _values(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in arguments.items())


def shown(card: Mapping[str, Any]) -> str:
    """A card as Markdown."""
    facts = ("category", "task", "model", "data", "unit", "batch_size", "optimizer", "metric", "references")
    lines = [f"# {card['job']}", ""]
    for name in facts:
        value = ", ".join(card[name]) if name == "references" else card[name]
        lines += [f"- {name.replace('_', ' ')}: {value}"] if value else []
    if card["parameters"]:
        lines.append(f"- parameters at its published size, in millions: {card['parameters']:g}")
    lines += ["", "## Deviations from the original", "", *(f"- {each}" for each in card["deviations"])]
    if card["changes"]:
        numbered = zip(range(card["version"], 1, -1), card["changes"], strict=True)
        lines += ["", "## Changes", "", *(f"- {n}: {each}" for n, each in numbered), "- 1: first version"]
    return "\n".join(lines) + "\n"


@cache
def references() -> Mapping[str, Mapping[str, str]]:
    """Fields of each reference, by its key."""
    return {
        found["key"]: {field["name"]: field["value"] for field in _BIB_FIELD.finditer(found["fields"])}
        for found in _ENTRY.finditer(_BIBLIOGRAPHY.read_text(encoding="utf-8"))
    }


def bibtex(keys: Iterable[str]) -> str:
    """BibTeX of references, each once, in the order of `references.bib`."""
    wanted = set(keys)
    entries = _ENTRY.finditer(_BIBLIOGRAPHY.read_text(encoding="utf-8"))
    return "\n\n".join(found[0] for found in entries if found["key"] in wanted)


def page() -> str:
    """All cards as one page of Markdown, by category."""
    parts = [
        "# Jobs\n\n`run` takes every job; most also train as arrays. `dnnsuite show JOB --bibtex` "
        "prints what a job refers to.\n"
    ]
    for category in CATEGORIES:
        parts.append(f"\n## {category[0].upper()}{category[1:]}\n")
        for card in (each for each in all_cards() if each["category"] == category):
            title, _, rest = shown(card).partition("\n")
            parts.append(f"\n### {title.removeprefix('# ')}\n" + rest.replace("\n## ", "\n#### "))
    return "".join(parts)
