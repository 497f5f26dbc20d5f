# SPDX-License-Identifier: MIT
"""The rows of a run's record."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from .._runs.reading import ReadRun, output_directory
from .._runs.record import FASTEST, WITH_LOADER, BadRecord, Metric, RunRecord, quality_text
from .table import SEPARATOR, Row


def rows_of_record(run: ReadRun) -> Iterator[Row]:
    """One row per metric; one without a value for a run that failed, or that found nothing.

    Raises:
        BadRecord: a value that only a suite's run has is missing or impossible; the message names it.
    """
    record, common = run.record, _common(run)
    seed = _seed_unit(record)
    if not record.ok or not record.metrics:
        yield replace(common, unit=f"{record.unit}/s", seed_unit=seed[0] if seed else "")
    for metric in record.metrics:
        row = replace(
            common, metric=metric.name, value=metric.value, unit=metric.unit, replica=metric.replica,
            low=math.nan if metric.low is None else metric.low,
            high=math.nan if metric.high is None else metric.high,
        )  # fmt: skip
        if seed and metric.name == "throughput" and metric.replica is None:
            loaded = next((each for each in record.metrics if each.name == WITH_LOADER), None)
            row = replace(row, seed_unit=seed[0], seed_rate=_seed_rate(record, loaded or metric, seed[1]))
            row = replace(row, seed_feed="loader") if loaded else row
        yield row


def _common(run: ReadRun) -> Row:
    """Return the columns that all rows of a run share."""
    record = run.record
    return Row(
        job=record.job, device=record.device.type, mode=record.mode, precision=record.precision, B=record.B,
        repeat=record.repeat, status=record.verdict.status, failure=record.verdict.failure,
        run=run.directory.resolve().name, kind=record.kind, plan=record.plan, plan_id=record.plan_id,
        plan_path=str(output_directory(run.directory)), run_id=record.id, share=record.share,
        copies=record.copies, processes=record.processes, threads=record.threads,
        batch_size=record.batch_size, preset=record.preset, data=record.data, job_version=record.job_version,
        variant=record.variant or _second(record) or _point(record),
        changed=SEPARATOR.join(f"{name}={value}" for name, value in record.changed.items()), feed=record.feed,
        seed_feed=record.feed, skipped_steps=record.skipped_steps, seed=record.seed, item=record.unit,
        disturbances=SEPARATOR.join(record.disturbances), message=record.verdict.message,
        started=record.started.utc, seconds=record.seconds, path=str(run.directory),
        **_judged(record), **_machine(record),
    )  # fmt: skip


def _judged(record: RunRecord) -> dict[str, Any]:
    """Return what was learned, and the weight of the job."""
    weight, quality = (record.details.get(name) for name in ("weight", "quality"))
    try:
        if not 0 < (own := 1.0 if weight is None else float(weight)) < math.inf:
            raise ValueError
        return {"quality": quality_text(record), "weight": own}
    except (KeyError, TypeError, ValueError) as error:
        raise BadRecord(f"weight {weight!r} or quality {quality!r} is none that can be") from error


def _machine(record: RunRecord) -> dict[str, Any]:
    """Return the columns that say on what machine a run was made, how isolated, and with which versions."""
    return {
        "isolation": record.isolation.level, "page_cache": record.page_cache,
        "hostname": record.machine.hostname, "cpu_model": record.machine.cpu_model,
        "cpus": record.machine.cpus, "gpus": ", ".join(record.machine.gpus), "driver": record.machine.driver,
        "system": record.machine.system,
        "device_name": record.device.name, "torch": str(record.versions.get("torch") or ""),
        "dnnsuite": str(record.versions.get("dnnsuite") or ""), "commit": record.commit,
    }  # fmt: skip


def _point(record: RunRecord) -> str:
    """Setting that tells the runs of a plan apart where it measures at several batch sizes; empty elsewhere."""
    return f"batch_size={record.batch_size}" if record.kind == "throughput" and record.batch_size else ""


def _second(record: RunRecord) -> str:
    """Suffix that distinguishes the second job of a name in a suite of an earlier version."""
    key = str(record.details.get("key") or "") if record.kind == "suite" else ""
    number = key.removeprefix(f"{record.job}.")
    return f"#{number}" if number != key and number.isdecimal() else ""


def _seed_unit(record: RunRecord) -> tuple[str, float] | None:
    """Return (name, items of the job in one) of what the original suite counted; None for what is no run of a suite."""
    if record.kind != "suite":
        return None
    unit = record.details.get("seed_unit")
    try:
        name, items = str(unit["name"]), float(unit["items"])  # type: ignore[index]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise BadRecord(f"seed_unit is {unit!r}: not a name and a number of items") from error
    if not 0 < items < math.inf:
        raise BadRecord(f"seed_unit has {items} items: not a positive number")
    return name, items


def _seed_rate(record: RunRecord, metric: Metric, items: float) -> float:
    """Rate in the original's unit; for `scaling`, whose target is 1, the share of the first that each device adds."""
    if record.job != "scaling":
        return metric.value / items
    metrics = record.details.get("job_metrics")
    found = metrics.get("efficiency") if isinstance(metrics, Mapping) else None
    if found is None:
        return math.nan
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not 0 <= found < FASTEST:
        raise BadRecord(f"efficiency is {found!r}: not a number that it can be")
    return float(found)
