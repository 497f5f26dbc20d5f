# SPDX-License-Identifier: MIT
"""All parts of a report, made from directories of runs and from nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._entries import Entry
from ._interference import interference_table
from ._read import read
from ._score import Score, score, score_table, weighted_score
from ._seed import JOBS, LEAST_RUNS, Statistic, seed_table, statistics
from ._summary import device_table, failures, isolation, summary_table
from ._unlike import differences, refuse_unlike
from .targets import Target, load, weights

if TYPE_CHECKING:
    import pandas

__all__ = ["Report", "make"]


@dataclass(frozen=True)
class Report:
    """What the renderers show. Tables are described where they are made; None where nothing was asked or measured."""

    title: str
    entries: Sequence[Entry]
    machine: dict[str, str]
    summary: pandas.DataFrame
    devices: pandas.DataFrame
    failures: dict[str, list[Entry]]
    isolation: dict[str, int]
    seed: pandas.DataFrame
    statistics: list[Statistic]
    weighted: float
    target: str | None = None
    scored: pandas.DataFrame | None = None
    score: Score | None = None
    interference: pandas.DataFrame | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Every statistic passes, and nothing failed."""
        return all(line.passed for line in self.statistics) and not self.failures

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it; NaN is None."""
        return {
            "title": self.title, "passed": self.passed, "target": self.target, "machine": self.machine,
            "summary": _records(self.summary), "definitions": dict(self.summary.attrs["definitions"]),
            "devices": _records(self.devices), "isolation": self.isolation,
            "failures": {kind: [_failed(entry) for entry in of_kind] for kind, of_kind in self.failures.items()},
            "seed_table": _records(self.seed),
            "statistics": [vars(line) for line in self.statistics], "weighted_score": _plain(self.weighted),
            "score_table": None if self.scored is None else _records(self.scored),
            "score": None if self.score is None else {**vars(self.score), "score": self.score.value,
                                                      "price_per_point": self.score.price_per_point},
            "interference": None if self.interference is None else _records(self.interference),
            "notes": self.notes,
        }  # fmt: skip


def make(
    directories: Sequence[Path], name: str | None = None, target: str | None = None, *, title: str = "",
    exclude: Sequence[str] = (), price: float | None = None, jobs: int = JOBS, weight_file: Path | None = None,
    alone: Sequence[Path] = (), allow_unlike: bool = False,
) -> Report:  # fmt: skip
    """The report on the runs below `directories`.

    Args:
        name: of the suite; others in the directories are left out.
        target: V100, MI50, RTX, or a CSV file of targets. Needed for diffs and a score.
        exclude: jobs to leave out.
        jobs: how many jobs must have a row.
        alone: directories of the same suite with one copy of each job: adds the table of interference.
        allow_unlike: report on runs that differ in what ran or where, with notes that say so.

    Raises:
        UnlikeRuns: the runs differ and that is not allowed.
        InvalidArgument, Error: see `read` and `targets.load`.
    """
    entries = [entry for entry in read(directories, name) if entry.job not in exclude]
    notes = differences(entries) if allow_unlike else []
    if not allow_unlike:
        refuse_unlike(entries)
    targets: dict[str, Target] | None = load(target) if target else None
    table = seed_table(entries, targets)
    few = [str(job) for job in table.index[table["sd"].isna()]]
    if few:
        notes.append(f"fewer than {LEAST_RUNS} runs, so left out of the statistics: {', '.join(few)}")
    notes += [f"{len(flagged)} results are flagged: {text}" for text, flagged in _flags(entries).items()]
    return Report(
        title=title or f"{name or 'suite'}: {', '.join(str(directory) for directory in directories)}",
        entries=entries, machine=_machine(entries), summary=summary_table(entries), devices=device_table(entries),
        failures=failures(entries), isolation=isolation(entries), seed=table, statistics=statistics(table, jobs),
        weighted=weighted_score(table, weights(weight_file)), target=target,
        scored=score_table(entries, targets) if targets else None,
        score=score(entries, targets, price) if targets else None,
        interference=interference_table(read(alone, name), entries) if alone else None, notes=notes,
    )  # fmt: skip


def _flags(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        for flag in entry.flags:
            found.setdefault(flag, []).append(entry)
    return found


def _machine(entries: Sequence[Entry]) -> dict[str, str]:
    """The conditions that all entries share."""
    shared: dict[str, str] = {}
    for name in dict.fromkeys(key for entry in entries for key in entry.conditions):
        values = {entry.conditions.get(name, "unknown") for entry in entries}
        if len(values) == 1:
            shared[name] = values.pop()
    return shared


def _failed(entry: Entry) -> dict[str, str]:
    return {"job": entry.job, "run": entry.run, "device": entry.device, "message": entry.message,
            "path": str(entry.path)}  # fmt: skip


def _records(table: pandas.DataFrame) -> list[dict[str, Any]]:
    return [
        {str(key): _plain(value) for key, value in row.items()}
        for row in table.reset_index().to_dict("records")
    ]


def _plain(value: Any) -> Any:
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
