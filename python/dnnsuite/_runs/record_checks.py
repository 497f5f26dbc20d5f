# SPDX-License-Identifier: MIT
"""Checks of a run's record: every value in it is one that a run can have."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_args

from .record_parts import FASTEST, KINDS, MOST, BadRecord, Metric, Samples, Status

if TYPE_CHECKING:
    from .record import RunRecord

_TEXTS = (
    "id", "plan_id", "plan", "job", "mode", "precision", "unit", "share", "preset", "data", "job_version",
    "variant", "feed", "page_cache",
)  # fmt: skip
_COUNTS = ("B", "repeat", "copies", "cpus", "batch_size", "threads", "processes")
_AMOUNTS = {"seconds": FASTEST, "items_per_step": FASTEST, "skipped_steps": math.nextafter(1.0, 2.0)}


def checked(record: RunRecord) -> RunRecord:
    """Return `record` if every value in it is one that a run can have.

    Raises:
        BadRecord: one is not; the message names it.
    """
    if record.kind not in KINDS:
        raise BadRecord(f"kind is {record.kind!r}; known: {', '.join(KINDS)}")
    check_value("status", record.verdict.status)
    for name in _TEXTS:
        value = getattr(record, name)
        if not isinstance(value, str):
            raise BadRecord(f"{name} is {value!r}: not a text")
    for name in (*_COUNTS, *_AMOUNTS, "seed"):
        check_value(name, getattr(record.machine if name == "cpus" else record, name))
    for name in ("changed", "asked", "resolved", "window", "details", "versions"):
        if not isinstance(getattr(record, name), Mapping):
            raise BadRecord(f"{name} is {getattr(record, name)!r}: not an object")
    values: dict[tuple[str, int | None], float] = {}
    for metric in record.metrics:
        _check_metric(metric)
        first = values.setdefault((metric.name, metric.replica), metric.value)
        if first != metric.value and not first != first:
            raise BadRecord(f"{metric.name} is {first} and {metric.value}: two values of one metric")
    _check_parts(record)
    return record


def _check_parts(record: RunRecord) -> None:
    """Refuse a part of the record in which a text or a number is of another type."""
    machine, device, verdict = record.machine, record.device, record.verdict
    samples = record.samples or Samples()
    lists = {
        "gpus of the machine": machine.gpus,
        "uuids of the device": device.uuids,
        "disturbances": record.disturbances,
        "files of the samples": samples.files,
        "columns of the samples": samples.columns,
    }
    for name, found in lists.items():
        if not isinstance(found, tuple) or not all(isinstance(each, str) for each in found):
            raise BadRecord(f"{name} is {found!r}: not a list of texts")
    texts = {
        "machine's hostname": machine.hostname, "machine's cpu_model": machine.cpu_model,
        "machine's driver": machine.driver, "device's type": device.type, "device's name": device.name,
        "isolation's level": record.isolation.level, "started's utc": record.started.utc,
        "verdict's message": verdict.message, "verdict's failure": verdict.failure or "",
        "commit": record.commit, **{f"version of {name}": value or "" for name,
        value in record.versions.items()},
    }  # fmt: skip
    for name, value in texts.items():
        if not isinstance(value, str):
            raise BadRecord(f"{name} is {value!r}: not a text")


def _check_metric(metric: Metric) -> None:
    for name, text in (("name", metric.name), ("unit", metric.unit), ("definition", metric.definition)):
        if not isinstance(text, str):
            raise BadRecord(f"{name} of a metric is {text!r}: not a text")
    if metric.replica is not None and (isinstance(metric.replica, bool) or not isinstance(metric.replica, int)):
        raise BadRecord(f"{metric.name}: replica is {metric.replica!r}: not a whole number")
    for name in ("value", "low", "high"):
        value = getattr(metric, name)
        if value is None and name != "value":
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise BadRecord(f"{metric.name}: {name} is {value!r}: not a number")
        if isinstance(value, int) and abs(value) > MOST:
            raise BadRecord(f"{metric.name}: {name} has {len(str(value))} digits: not a number that it can be")
    check_rate(metric.name, metric.value, metric.low, metric.high)


def check_value(name: str, value: Any) -> None:
    """Refuse a value that a run cannot have in this field, of a record or of a table; other fields may have any.

    Raises:
        BadRecord: the message names it.
    """
    whole = isinstance(value, int) and not isinstance(value, bool)
    if name in _COUNTS and not (whole and 0 <= value <= MOST):
        raise BadRecord(f"{name} is {value!r}: not a count")
    if name == "seed" and not (whole and -MOST <= value <= MOST):
        raise BadRecord(f"seed is {value!r}: not a whole number that it can be")
    if name in _AMOUNTS and not ((whole or isinstance(value, float)) and 0 <= value < _AMOUNTS[name]):
        raise BadRecord(f"{name} is {value!r}: not a number that it can be")
    if name == "status" and value not in get_args(Status):
        raise BadRecord(f"status is {value!r}; known: {', '.join(get_args(Status))}")


def check_rate(metric: str, value: float, low: float | None = None, high: float | None = None) -> None:
    """Refuse a rate that no run can have, or an interval that ends before it begins, of a record or of a table; NaN
    is one that is not known.

    Raises:
        BadRecord: the message names it.
    """
    if metric.partition("/")[0] == "throughput" and not (math.isnan(value) or 0 < value < FASTEST):
        raise BadRecord(f"{metric} is {value}: a rate is more than 0 and less than {FASTEST:g}")
    if low is not None and high is not None and low > high:
        raise BadRecord(f"{metric}: its interval is {low} to {high}")
