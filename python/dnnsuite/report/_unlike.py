# SPDX-License-Identifier: MIT
"""Rates are pooled or compared only when they are of the same thing: this says where they are not."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import Error
from ._entries import Entry, by_job, finished

__all__ = ["UnlikeRuns", "differences", "refuse_unlike"]


class UnlikeRuns(Error):
    """Runs that must not be compared: they differ in what ran or on which machine."""


def differences(entries: Sequence[Entry], ignoring: Sequence[str] = ()) -> list[str]:
    """One sentence for each job and condition in which its measured entries differ."""
    found = []
    for job, of_job in by_job(finished(entries)).items():
        for name in dict.fromkeys(key for entry in of_job for key in entry.conditions):
            if name in ignoring:
                continue
            where: dict[str, Entry] = {}
            for entry in of_job:
                where.setdefault(entry.conditions.get(name, "unknown"), entry)
            if len(where) > 1:
                shown = "; ".join(f"{value} in {entry.path}" for value, entry in sorted(where.items()))
                found.append(f"{job}: {name} differs: {shown}")
    return found


def refuse_unlike(entries: Sequence[Entry], ignoring: Sequence[str] = ()) -> None:
    """Raises UnlikeRuns naming what differs, first of all, and where."""
    found = differences(entries, ignoring)
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise UnlikeRuns(f"these runs are not of the same thing: {found[0]}{more}; report on them apart")
