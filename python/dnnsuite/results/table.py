# SPDX-License-Identifier: MIT
"""The table of results: one row per run, replica and metric; what each column holds, and its CSV file."""

from __future__ import annotations

import csv
import hashlib
import io
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._files import SUM, check_sums, sums_of, whole_lines, write_text
from .._lazy import pandas as pd
from .._runs.record_parts import BadRecord, check_rate, check_value
from .._shown import number, percent, ratio
from ..errors import Error, reason

if TYPE_CHECKING:
    from pandas.io.formats.style import Styler

SEPARATOR = "; "  # between the disturbances of a run


@dataclass(frozen=True, kw_only=True)
class Row:
    """One figure of one run.

    Attributes:
        replica: worker process that the row speaks of; None for the whole run.
        low, high: a 95 % interval, NaN where none is known.
        run: name of the run's directory.
        run_id: id that no other run has, also none of the same name.
        kind: workflow, suite, training, trial, profile, throughput; hfta, mila, milabench: of those
            projects' own tools.
        plan: name of the workflow or suite.
        plan_id: id that no other plan has, also none of the same name.
        plan_path: its output directory.
        share: share of the machine; `all` for the whole of it, empty where it was not cut.
        variant: settings that tell configurations of the job in one plan apart.
        changed: settings that are not the job's own.
        feed: source of the batches, `memory` or `loader`; seed_feed is that of `seed_rate`.
        item: name of the items that a rate counts, as images.
        seed_rate: rate in what the original suite counted, `seed_unit`; NaN for what is no run of a suite.
        disturbances: separated by `SEPARATOR`.
        quality: measure on held-out data beside its target; empty without one.
        weight: weight of the job in the one number of a comparison or a score.
        path: the run's directory, or the file that it was read from.
    """

    job: str
    device: str = ""
    mode: str = ""
    precision: str = ""
    B: int = 1
    repeat: int = 0
    replica: int | None = None
    metric: str = "throughput"
    value: float = math.nan
    unit: str = ""
    low: float = math.nan
    high: float = math.nan
    status: str = "ok"
    failure: str | None = None
    run: str = ""
    kind: str = ""
    plan: str = ""
    plan_id: str = ""
    plan_path: str = ""
    run_id: str = ""
    share: str = ""
    copies: int = 1
    processes: int = 1
    threads: int = 0
    batch_size: int = 0
    preset: str = ""
    data: str = ""
    job_version: str = ""
    variant: str = ""
    changed: str = ""
    feed: str = ""
    seed_feed: str = ""
    skipped_steps: float = 0.0
    page_cache: str = ""
    seed: int = 0
    item: str = ""
    seed_rate: float = math.nan
    seed_unit: str = ""
    isolation: str = ""
    disturbances: str = ""
    message: str = ""
    hostname: str = ""
    cpu_model: str = ""
    cpus: int = 0
    gpus: str = ""
    driver: str = ""
    system: str = ""
    device_name: str = ""
    torch: str = ""
    dnnsuite: str = ""
    commit: str = ""
    started: str = ""
    seconds: float = math.nan
    path: str = ""
    quality: str = ""
    weight: float = 1.0


COLUMNS = tuple(each.name for each in fields(Row))
_VALUES = attrgetter(*COLUMNS)  # quicker than astuple, which copies
LEAST = COLUMNS[: COLUMNS.index("run") + 1]  # what a table of an earlier version has
_COMPLETE = "complete"  # in a table's attrs
_DEFAULTS = {each.name: each.default for each in fields(Row)}
_INTEGERS = [name for name, value in _DEFAULTS.items() if type(value) is int]
_FLOATS = [name for name, value in _DEFAULTS.items() if type(value) is float]
_RATED = ("metric", "value", "low", "high")
_TEXTS = [name for name in COLUMNS if name not in (*_INTEGERS, *_FLOATS, "replica", "failure")]


def frame_of(rows: Iterable[Row]) -> pd.DataFrame:
    """Return the table of these rows."""
    return complete(pd.DataFrame(map(_VALUES, rows), columns=list(COLUMNS)))


def complete(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with every column, in order and with its type. Values that an earlier version did not write are
    missing."""
    if table.attrs.get(_COMPLETE) and tuple(table.columns) == COLUMNS:
        return table  # which takes longer to see in pandas than a comparison does
    absent = [name for name in COLUMNS if name not in table.columns]
    more = pd.DataFrame({name: _DEFAULTS[name] for name in absent}, index=table.index)
    made = pd.concat([table, more], axis=1)[list(COLUMNS)]
    made.attrs = {**table.attrs, _COMPLETE: True}
    texts = made[_TEXTS]
    made[_TEXTS] = texts.where(texts.notna(), "").astype(object)
    numbers = {name: _DEFAULTS[name] for name in _INTEGERS}
    made = made.fillna(numbers).astype({**dict.fromkeys(_INTEGERS, "int64"), **dict.fromkeys(_FLOATS, "float64")})
    made = made.astype({"replica": "Int64", "failure": object})
    made["failure"] = made["failure"].where(made["failure"].notna(), None)
    unnamed = made["run_id"] == ""
    made.loc[unnamed, "run_id"] = made.loc[unnamed, "run"]
    return made


@contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Context manager: what goes wrong as a file is read becomes an Error that names it."""
    try:
        yield
    except KeyError as error:
        raise Error(f"{path}: no column {error}") from error
    except (OSError, ValueError, csv.Error) as error:  # pandas' parser errors are ValueErrors
        raise Error(f"{path}: {reason(error)}") from error


@contextmanager
def values_of(what: str) -> Iterator[None]:
    """Context manager: values that cannot be become an Error that begins with `what` they are not."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise Error(f"{what}: {error!r}") from error


def save_csv(table: pd.DataFrame, path: Path, index: bool = False) -> None:
    """Write a table as CSV; the file is complete or absent. A table of results gets a checksum in each line.

    Args:
        table: any table; one from :func:`dnnsuite.results.load` can be read back.
        path: file to write.
        index: True also writes the table's index, as the first column.
    """
    text = table.to_csv(index=index)
    if set(LEAST) <= set(table.columns):
        lines = list(csv.reader(io.StringIO(text)))
        sealed = io.StringIO()
        csv.writer(sealed, lineterminator="\n").writerows(
            [*line, own] for line, own in zip(lines, [SUM, *sums_of(lines)], strict=True)
        )
        text = sealed.getvalue()
    write_text(path, text)


def read_csv(path: Path) -> pd.DataFrame:
    """Return the table in a CSV file that :func:`save_csv` wrote, of this version or an earlier one.

    Raises:
        Error: it is missing, damaged, or no such table; the message names it.
    """
    numbers = [*_INTEGERS, *_FLOATS, "replica", "failure"]
    with reading(path):
        with open(whole_lines(path), newline="", encoding="utf-8-sig") as file:
            lines = [(reader.line_num, row) for reader in (csv.reader(file),) for row in reader if row]
        if odd := [number for number, row in lines if len(row) != len(lines[0][1])]:
            raise ValueError(f"line {odd[0]} has another number of columns than the first")
        check_sums(lines)
        table = pd.read_csv(
            path, dtype=dict.fromkeys(_TEXTS, str), keep_default_na=False, na_values={name: [""] for name in numbers}
        )
    if absent := [name for name in LEAST if name not in table.columns]:
        raise Error(f"{path}: no column {absent[0]!r}: not a table of results")
    if "run_id" not in table.columns:  # of an earlier version: told apart by where it lies
        plan = hashlib.sha256(f"plan:{path.resolve()}".encode()).hexdigest()[:32]
        table = table.assign(plan_id=plan, run_id=plan + "/" + table["run"])
    try:
        for name in _INTEGERS:  # before they are made whole
            _check_column(table, name)
        found = complete(table)
        for name in ("status", "seconds", "skipped_steps", "weight"):
            _check_column(found, name)
        for line, (metric, *values) in enumerate(zip(*(found[name] for name in _RATED), strict=True), 2):
            _check(line, check_rate, metric, *values)
        return _each_once(found)
    except (TypeError, ValueError) as error:
        raise Error(f"{path}: not a table of results: {error}") from error


def _check_column(table: pd.DataFrame, name: str) -> None:
    """Refuse a value of a column that no run can have; one that is not known is none."""
    for value in dict.fromkeys(table[name].dropna() if name in table else ()):
        line = 2 + int((table[name] == value).to_numpy().argmax())
        if name == "weight" and not 0 < value < math.inf:
            raise ValueError(f"line {line}: weight is {value}: not a number that it can be")
        if name not in _INTEGERS:
            _check(line, check_value, name, value)
        elif not isinstance(value, str):  # a text is told of when the table is completed
            _check(line, check_value, name, int(value) if float(value).is_integer() else value)


def _check(line: int, check: Callable[..., None], *values: Any) -> None:
    try:
        check(*values)
    except BadRecord as error:
        raise ValueError(f"line {line}: {error}") from None


def _each_once(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table without rows that stand in it twice; two values of one metric of a run are refused."""
    once = table.drop_duplicates()
    again = once.duplicated(["run_id", "run", "job", "metric", "replica"], keep=False)
    if again.any():
        row = once[again].iloc[-1]
        raise ValueError(f"line {2 + int(str(row.name))}: two values of {row['metric']} of run {row['run']}")
    if len(once) == len(table):
        return table
    once = once.reset_index(drop=True)
    once.attrs = table.attrs
    return once


_RATIOS = ("normalized", "over_serial", "over_concurrent", "ratio", "slowdown", "times", "efficiency")


def styled(table: pd.DataFrame, index: bool = True) -> Styler:
    """Style a table for a notebook: rates with four significant digits, ratios with two decimals, percentages with one.

    Args:
        table: any table of this package; the names of its columns decide the format. Its values are not changed.
        index: False hides the index.

    >>> import pandas as pd
    >>> styled(pd.DataFrame({"rate": [12345.6], "share_pct": [1.25]})).to_string(delimiter="|").splitlines()[1]
    '0|12,346|1.2 %'
    """
    fractions = table.select_dtypes("float").columns
    of_ratios = any(str(name) in _RATIOS for name in table.columns)
    formats: dict[Any, Any] = {name: _format(str(name), of_ratios) for name in fractions}
    made = table.style.format(formats, na_rep="")
    return made if index else made.hide(axis="index")


def _format(name: str, of_ratios: bool) -> Callable[[float], str]:
    """Text of a column's values; `low` and `high` are those of the table's ratio where it has one."""
    if name.endswith(("pct", "%", "(%)")):
        return percent
    if name in _RATIOS or "times serial" in name or (of_ratios and name in ("low", "high")):
        return ratio
    return number
