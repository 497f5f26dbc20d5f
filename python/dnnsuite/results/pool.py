# SPDX-License-Identifier: MIT
"""Rules on pooling: one list of conditions that runs must share, one function with the reasons against.

A rate is compared only with its like. Everything that pools or compares (summaries, reports, figures) asks here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._lazy import pandas as pd
from ..errors import Error

Values = Mapping[str, Any]

CELL = ("job", "variant", "mode", "precision", "B")  # runs that agree in these are repeats of one another
UNKNOWN = "unknown"
_SEED = re.compile(r",? seed -?\d+")
_MAY_BE_UNKNOWN = (
    "settings",
    "batches from",
    "skipped steps",
    "page cache",
)  # that earlier versions did not record: no proof of a difference
MANY_SKIPPED = 0.1  # share of steps without the optimizer's work, from which on a rate is that of something else


def whole_runs(table: pd.DataFrame, ok: pd.Series[bool]) -> pd.Series[bool]:
    """Return for each row whether its run counts: all its copies, one a share, have a record and are `ok`.

    Where one copy failed the others had more of the machine, so nothing that they measured is of the run that was
    asked for. Where the record of one is missing or damaged, nobody knows. Other kinds than suites have no copies.
    """
    runs = run_keys(table)
    shares = table["share"].groupby(runs).transform("nunique")
    return ok.groupby(runs).transform("all") & (shares >= table["copies"].where(table["kind"] == "suite", 1))


class UnlikeRuns(Error):
    """Raised for runs that must not be pooled or compared, because the work or the kind of machine differs."""


@dataclass(frozen=True)
class Reason:
    """A reason not to pool runs: a condition in which they differ.

    Attributes:
        what: the runs, as a job or a job with its mode.
        condition: a name in `CONDITIONS`.
        values: places where each value was found, by value.
    """

    what: str
    condition: str
    values: Mapping[str, str]

    def __str__(self) -> str:
        shown = "; ".join(f"{value} in {path}" for value, path in sorted(self.values.items()))
        return f"{self.what}: {self.condition} differs: {shown}"


def _processor(row: Values) -> str:
    return f"{row['cpu_model']}, {row['cpus'] or '?'} CPUs" if row["cpu_model"] else UNKNOWN


def _of_suite(row: Values, usual: str) -> str:
    """`usual` for a run of a suite, nothing for others, which do not record it."""
    return usual if row["kind"] == "suite" else ""


# What must agree for rates to be of the same thing on the same kind of machine. Two machines of one kind may be pooled:
# a report on several nodes of a cluster does that.
CONDITIONS: dict[str, Callable[[Values], str]] = {
    "kind": lambda row: row["kind"],
    "job version": lambda row: row["job_version"][:32],
    "unit": lambda row: row["item"],
    "device": lambda row: row["device"],
    "precision": lambda row: row["precision"],
    # A suite that was asked for no preset, or for `baselines`, runs each job with its own settings.
    "preset": lambda row: (
        "the job's own" if row["kind"] == "suite" and row["preset"] in ("", "baselines") else row["preset"]
    ),
    "data": lambda row: _SEED.sub("", row["data"]),  # each copy draws its own
    "settings": lambda row: row["changed"] or _of_suite(row, "the job's own"),
    "batches from": lambda row: row["feed"],
    "skipped steps": lambda row: "many" if row["skipped_steps"] > MANY_SKIPPED else _of_suite(row, "few"),
    "page cache": lambda row: row["page_cache"] or _of_suite(row, "as found"),  # it was never dropped before
    "batch size": lambda row: str(row["batch_size"] or UNKNOWN),
    "copies": lambda row: str(row["copies"]),
    "threads": lambda row: str(row["threads"] or UNKNOWN),
    "isolation": lambda row: row["isolation"],
    "processor": _processor,
    "GPUs": lambda row: row["gpus"] or (UNKNOWN if _processor(row) == UNKNOWN else "none"),
    "torch": lambda row: ".".join(row["torch"].split("+")[0].split(".")[:2]),  # which changes what it computes with
}


def conditions(row: Values) -> dict[str, str]:
    """Return the conditions under which a run was measured, by name."""
    return {name: value(row) or UNKNOWN for name, value in CONDITIONS.items()}


def rows_of(table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield each row by the names of its columns; `to_dict` takes several times as long for few rows."""
    names = [str(name) for name in table.columns]
    for row in zip(*(table[name].tolist() for name in table.columns), strict=True):
        yield dict(zip(names, row, strict=True))


def measured(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with the rate of a whole run that counts."""
    whole = ended_well(table[(table["metric"] == "throughput") & table["replica"].isna()])
    return whole.dropna(subset=["value"])


def ended_well(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of runs that count, see :func:`whole_runs`."""
    return table[whole_runs(table, table["status"] == "ok")]


def run_keys(table: pd.DataFrame) -> pd.Series[str]:
    """Return what the rows of a run have in common: its id; of copies in shares of the machine, all of them."""
    alone = table["share"] == ""
    if alone.all():
        return table["run_id"]
    shared = table["plan_id"] + "/" + table["job"] + "/" + table["variant"] + "/" + table["repeat"].astype(str)
    return table["run_id"].where(alone, shared)


def reasons(table: pd.DataFrame, by: Sequence[str] = CELL, ignoring: Sequence[str] = ()) -> list[Reason]:
    """List every reason not to pool the runs that agree in the columns `by`. Runs that were not measured have none.

    Args:
        table: table from `results.load`, completed.
        by: columns that separate runs which are not pooled anyway.
        ignoring: names of conditions that may differ.
    """
    found = []
    for key, rows in measured(table).groupby(list(by), sort=True):
        values: dict[str, dict[str, str]] = {}
        for row in rows_of(rows):
            for name, value in conditions(row).items():
                values.setdefault(name, {}).setdefault(value, row["path"] or row["run"])
        what = _called(dict(zip(by, key, strict=True)))
        found += [
            Reason(what, name, where)
            for name, where in values.items()
            if len(where) > 1 and name not in ignoring and not (name in _MAY_BE_UNKNOWN and UNKNOWN in where)
        ]
    return found


def _called(cell: Values) -> str:
    """Return a job, with its variant, mode, precision and B where those are given."""
    variant = f" ({cell['variant']})" if cell.get("variant") else ""
    if "mode" not in cell:
        return f"{cell['job']}{variant}"
    return f"{cell['job']}{variant} {cell['mode']} {cell['precision']} B={cell['B']}"


def odd_copies(table: pd.DataFrame) -> dict[str, list[str]]:
    """Find jobs of which the copies of one run differ, as they may by the steps that they skip: sentences by job."""
    odd: dict[str, list[str]] = {}
    for _, copies in table.groupby(["plan_id", "repeat"], sort=False):
        for reason in reasons(copies, ("job",)):
            said = f"its copies differ in {reason.condition} ({', '.join(sorted(reason.values))})"
            odd[reason.what] = sorted({*odd.get(reason.what, ()), said})
    return odd


def without_odd(table: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Leave out jobs whose copies differ within one run.

    Returns:
        The table without them, and a note on each.
    """
    odd = odd_copies(table[table["mode"] == "shares"])
    return table[~table["job"].isin(odd)], [f"{job} is left out: {'; '.join(why)}" for job, why in odd.items()]


def refuse(found: Sequence[Reason]) -> None:
    """Raise if there is a reason.

    Raises:
        UnlikeRuns: the runs differ; the message has the first reason, and where.
    """
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise UnlikeRuns(
            f"these runs are not of the same thing: {found[0]}{more}; report on them apart, "
            "or on all with --allow-unlike (allow_unlike=True)"
        )


def refuse_unlike(table: pd.DataFrame, by: Sequence[str] = CELL, ignoring: Sequence[str] = ()) -> None:
    """Raise UnlikeRuns if :func:`reasons` finds a reason not to pool the runs.

    Args:
        table: table from `results.load`, completed.
        by: columns that separate runs which are not pooled anyway.
        ignoring: names of conditions that may differ.

    Raises:
        UnlikeRuns: there is a reason; the message lists them all.
    """
    refuse(reasons(table, by, ignoring))
