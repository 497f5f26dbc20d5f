# SPDX-License-Identifier: MIT
"""Interference, the cost of sharing: the suite with one copy of a job against the suite with several at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import InvalidArgument
from ..results.intervals import half_width, mean
from ..results.pool import refuse_unlike
from ._entries import ReportEntry, by_job, by_run, entries_of, finished, rows_of_report, table_of

if TYPE_CHECKING:
    import pandas

DEFINITIONS = {
    "copies": "how many trained at the same time",
    "alone_per_s": "items per second of one copy that has a share of the machine, and no neighbour",
    "shared_per_s": "items per second of one copy of several, each in its share",
    "slowdown": "alone / shared: 1 is no interference",
    "low": "lower end of the 95 % interval of slowdown (t over runs on logarithms, unpaired)",
    "high": "upper end of it",
    "machine_gain": "copies x shared / alone: what the machine yields more than one copy alone",
    "left_out": "runs of both that do not count, as one of their copies failed: the others had more of the machine",
    "verdict": "slower: the interval lies above 1; same: it lies within 5 % of 1; else inconclusive",
}
_SAME = 0.05


def interference_table(alone: pandas.DataFrame, shared: pandas.DataFrame) -> pandas.DataFrame:
    """One row per job that was measured with one copy and with several.

    Args:
        alone: results of `dnnsuite run --alone`, as `results.load` gives them.
        shared: results of the same suite with several copies.

    Raises:
        InvalidArgument: no job was measured both ways.
        UnlikeRuns: they differ in more than the number of copies.
    """
    import pandas

    one, many = rows_of_report(alone), rows_of_report(shared)
    rows = pandas.concat([one[one["copies"] == 1], many[many["copies"] > 1]], ignore_index=True)
    rows = rows[rows["share"] != "all"]
    entries = entries_of(rows)
    single = [entry for entry in entries if entry.copies == 1]
    several = [entry for entry in entries if entry.copies > 1]
    common = by_job(finished(single)).keys() & by_job(finished(several)).keys()
    if not common:
        raise InvalidArgument(
            "no job was measured both with one copy and with several that all ended well: give outputs of the same "
            "jobs, one of `dnnsuite run --alone`"
        )
    refuse_unlike(rows[rows["job"].isin(common)], ("job",), ignoring=("copies",))
    found = {job: _row(by_job(single)[job], by_job(several)[job]) for job in sorted(common)}
    return table_of(found, DEFINITIONS)


def _row(alone: Sequence[ReportEntry], shared: Sequence[ReportEntry]) -> dict[str, object]:
    one, many = _runs(alone), _runs(shared)
    copies = max(entry.copies for entry in shared)
    slowdown = mean(one) / mean(many)
    widths = [half_width([math.log(rate) for rate in rates]) for rates in (one, many)]
    half = math.hypot(*widths)
    low, high = slowdown * math.exp(-half), slowdown * math.exp(half)
    return {
        "unit": alone[0].unit,
        "copies": copies,
        "alone_per_s": mean(one),
        "shared_per_s": mean(many),
        "slowdown": slowdown,
        "low": low,
        "high": high,
        "machine_gain": copies / slowdown,
        "left_out": len(by_run(alone)) - len(one) + len(by_run(shared)) - len(many),
        "verdict": _verdict(low, high),
    }


def _runs(entries: Sequence[ReportEntry]) -> list[float]:
    return [mean(entry.rate for entry in of_run) for of_run in by_run(finished(entries)).values()]


def _verdict(low: float, high: float) -> str:
    if low > 1:
        return "slower"
    return "same" if low > 1 - _SAME and high < 1 + _SAME else "inconclusive"
