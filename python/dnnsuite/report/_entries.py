# SPDX-License-Identifier: MIT
"""What a report is made of: one entry for each execution of a job on one device."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["FAILURES", "Entry", "by_job", "by_run", "finished", "mean"]

# The classes of failure, in the order in which they are shown. `data`: the data asked for were not there.
FAILURES = (
    "oom", "nan", "timeout", "killed", "crash", "no steady state", "contaminated", "data", "unavailable",
)  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One execution: a job, in one run of the suite, on one device.

    Rates are items per second of wall time, NaN where it failed: `rate` in the job's own `unit`, `seed_rate` in what
    the original suite counted, which is what its targets are in. `interval` is that of `rate` within the run.
    `conditions` are what must agree between entries for their rates to be pooled, by name.
    """

    job: str
    run: str
    device: str
    rate: float
    seed_rate: float
    unit: str = "items"
    seed_unit: str = "items"
    scope: str = "student"
    copies: int = 1
    interval: tuple[float, float] | None = None
    failure: str | None = None
    message: str = ""
    isolation: str = "unknown"
    flags: tuple[str, ...] = ()
    conditions: Mapping[str, str] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    path: Path = Path()

    @property
    def ok(self) -> bool:
        """It was measured."""
        return self.failure is None


def finished(entries: Iterable[Entry]) -> list[Entry]:
    """Those that were measured."""
    return [entry for entry in entries if entry.ok]


def by_job(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    """The entries of each job, jobs by name."""
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        found.setdefault(entry.job, []).append(entry)
    return dict(sorted(found.items()))


def by_run(entries: Iterable[Entry]) -> dict[str, list[Entry]]:
    """The entries of each run of the suite."""
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        found.setdefault(entry.run, []).append(entry)
    return dict(sorted(found.items()))


def mean(values: Iterable[float]) -> float:
    """The arithmetic mean; NaN of nothing."""
    kept = list(values)
    return math.fsum(kept) / len(kept) if kept else math.nan
