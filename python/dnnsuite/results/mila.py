# SPDX-License-Identifier: MIT
"""Results of mila-iqia/training, of either age."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .._files import regular
from .._runs.failures import CLASSES
from .._runs.record import FASTEST
from ..errors import Error, reason
from .table import SEPARATOR, Row, values_of


def rows_of_mila(directory: Path, name: str | None = None) -> tuple[list[Row], list[str]]:
    """Return (rows, a sentence for each damaged file or result) of the suite `name`, or of any.

    A folder holds one folder per run with one file per device (`<name>_<device>.json`), or one file per result
    (`<name>.<job>.R<run>.D<device>...`).
    """
    wanted = name or "*"
    patterns = (f"{wanted}[_.]*.json", f"{wanted}.json")
    rows: list[Row] = []
    arguments: list[dict[str, Any]] = []
    problems: list[str] = []
    for path in sorted({path for pattern in patterns for path in directory.rglob(pattern)}):
        try:
            results = _results(path)
        except Error as error:
            problems.append(f"skipped: {error}")
            continue
        for index, result in enumerate(results):
            try:
                with values_of(f"{path}: not a result of the suite"):
                    rows.append(_row(path, index, result, directory, name))
                    arguments.append(
                        {
                            name: value
                            for name, value in result.items()
                            if name not in _NO_ARGUMENTS and isinstance(value, (str, int, float, bool))
                        }
                    )
            except Error as error:
                problems.append(f"skipped: {error}")
    return numbered(_with_variants(with_copies(rows, lambda row: row.job), arguments)), problems


def _results(path: Path) -> list[Any]:
    """Return the results in a file: one, a list, or a list that was never closed, as the original suite leaves it."""
    try:
        text = regular(path).read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Error(f"{path}: {reason(error)}") from error
    if text.startswith("[") and not text.endswith("]"):
        text = re.sub(r",$", "", text) + "]"
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Error(f"{path}: not a result of the suite: {error}") from error
    return found if isinstance(found, list) else [found]


def _row(path: Path, index: int, result: Mapping[str, Any], directory: Path, name: str | None) -> Row:
    about = result.get("dnnsuite") or {}
    failure = _failure(result, about)
    average = math.nan if failure else float(result["train_item"]["avg"])
    rate = average if math.isnan(average) else rate_of(average)
    settings = about.get("changed") or {}
    devices = str(result.get("vcd", ""))
    number = re.search(r"\.R(\w+)\.", path.name)
    plan = hashlib.sha256(f"mila:{directory.resolve()}".encode()).hexdigest()[:32]
    versions = [str(result[key])[:12] for key in ("unique_id", "version") if result.get(key)]
    return Row(
        job=str(result["name"]),
        precision="unknown",
        mode="shares",
        value=rate,
        seed_rate=rate,
        unit="items/s",
        item="items",
        seed_unit="items",
        status="failed" if failure else "ok",
        failure=failure,
        message=str(about.get("message") or _MESSAGES.get(failure or "", "")),
        run=number[1] if number else path.parent.relative_to(directory).as_posix(),
        kind="mila",
        plan=name or re.sub(r"(_\d+(,\d+)*|\..*)?\.json$", "", path.name),  # the suite's name begins the file's
        plan_id=plan,
        plan_path=str(directory),
        run_id=f"{plan}/{path.relative_to(directory).as_posix()}#{index}",
        share="all" if "," in devices else devices,
        job_version=" ".join(versions),
        batch_size=count_of(result.get("batch_size")),
        preset=str(about.get("preset") or ""),
        changed=SEPARATOR.join(f"{name}={value}" for name, value in settings.items()),
        feed=str(about.get("feed") or ""),
        seed_feed=str(about.get("feed") or ""),
        gpus=str(result.get("gpu") or ""),
        hostname=str(result.get("hostname") or ""),
        path=str(path),
    )


def rate_of(value: Any) -> float:
    """Read items per second.

    Raises:
        ValueError: no run can have it.
    """
    rate = float(value)
    if not 0 <= rate < FASTEST:
        raise ValueError(f"{rate} items per second: no rate is negative, or {FASTEST:g} and more")
    return rate


def count_of(value: Any) -> int:
    """Read a count; 0 for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**63 else 0


# Of a result, what is no argument of its job, or tells devices and runs apart and not what was run.
_NO_ARGUMENTS = {
    "batch_loss", "epoch_loss", "metrics", "train", "train_item", "completed", "dnnsuite", "name", "unique_id",
    "version", "hostname", "run_id", "gpu", "jr_id", "vcd", "cpu_cores", "seed", "devices", "data", "cuda", "report",
}  # fmt: skip


def _with_variants(rows: Sequence[Row], arguments: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return the rows, of jobs that one device ran with several arguments in one run named by those that differ."""
    executions = Counter((row.run, row.share, row.job) for row in rows)
    several = {job for (_, _, job), count in executions.items() if count > 1}
    found = []
    of_job = {job: [arguments[i] for i, row in enumerate(rows) if row.job == job] for job in several}
    differing = {
        job: [name for name in sorted(set().union(*all_)) if len({str(each.get(name)) for each in all_}) > 1]
        for job, all_ in of_job.items()
    }
    for row, own in zip(rows, arguments, strict=True):
        said = ", ".join(f"{name}={own.get(name)}" for name in differing.get(row.job, ()))
        found.append(replace(row, variant=said) if said else row)
    return found


_MESSAGES = {"nan": "a loss is not finite", "crash": "did not complete"}


def _failure(result: Mapping[str, Any], about: Mapping[str, Any]) -> str | None:
    """Return the class of a failure: the one that our own files name, else a crash; None for what ended well."""
    if any(loss is None or math.isnan(loss) for loss in result.get("batch_loss") or ()):
        return "nan"
    named = about.get("failure")
    return None if result.get("completed", True) else named if named in CLASSES else "crash"


def numbered(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with `repeat` counting the runs, in the order of their names."""
    runs = sorted({row.run for row in rows}, key=lambda run: (len(run), run))
    return [replace(row, repeat=runs.index(row.run)) for row in rows]


def with_copies(rows: Sequence[Row], together: Callable[[Row], object]) -> list[Row]:
    """Return the rows, with the number of copies that ran at once: one on each share of which there are results.

    Args:
        together: what the rows of copies have in common.
    """
    shares: dict[object, set[str]] = {}
    for row in rows:
        shares.setdefault(together(row), set()).add(row.share)
    return [row if row.share == "all" else replace(row, copies=len(shares[together(row)] - {"all"})) for row in rows]
