# SPDX-License-Identifier: MIT
"""Parts of a run's record, and checks that every value in a record is one that a run can have."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, get_args

from ..errors import Error

if TYPE_CHECKING:
    from .record import RunRecord

Kind = Literal["workflow", "suite", "training", "trial", "profile", "throughput"]
Status = Literal["ok", "failed"]
KINDS: tuple[str, ...] = get_args(Kind)

WITH_LOADER = "throughput/with loader"  # name of a second rate: batches come from a loader of files
MOST = 2**62  # that a count or a seed can be; tables keep them in 64 bits
FASTEST = 1e30  # items per second; sums of larger figures would overflow

# Free-form parts of a record: whatever JSON can hold.
Json = Mapping[str, Any]


class BadRecord(Error):
    """Raised for a `run.json` that cannot be read; the message names the file and the defect."""


@dataclass(frozen=True)
class Moment:
    """A point in time, on the calendar and on the clock that samples use.

    Attributes:
        utc: ISO 8601 in UTC, to the millisecond.
        monotonic_ns: CLOCK_MONOTONIC of the same moment; comparable within one boot of one machine only.
    """

    utc: str
    monotonic_ns: int

    @classmethod
    def now(cls) -> Moment:
        """Return the present moment."""
        seconds, monotonic_ns = time.time(), time.monotonic_ns()
        whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
        return cls(f"{whole}.{int(seconds * 1000) % 1000:03d}Z", monotonic_ns)


@dataclass(frozen=True)
class Machine:
    """The computer a run was on. `gpus` are names, one for each GPU; `driver` is NVIDIA's, empty without one; `system`
    has the rest, as "kernel: 6.1; microcode: 0x1"."""

    hostname: str = ""
    cpu_model: str = ""
    cpus: int = 0
    memory_bytes: int = 0
    gpus: tuple[str, ...] = ()
    driver: str = ""
    system: str = ""


@dataclass(frozen=True)
class Device:
    """Device of a run: `type` is cpu or cuda; `uuids` names the GPUs that the run could use."""

    type: str
    name: str = ""
    uuids: tuple[str, ...] = ()


@dataclass(frozen=True)
class Isolation:
    """Separation of a run from others on the machine.

    Attributes:
        level: level obtained: cgroup, affinity or none; `unknown` in a record that does not say.
        asked: level asked for.
        details: means that make up the level, and why it is not a stronger one.
    """

    level: str = "unknown"
    asked: str = ""
    details: Json = field(default_factory=dict)


@dataclass(frozen=True)
class Metric:
    """One figure of a run, with a 95 % interval where one is known.

    Attributes:
        name: name such as throughput or time/step.
        replica: number of the worker process; None for the whole run.
        definition: formula or method, where the name does not say it.
    """

    name: str
    value: float
    unit: str
    low: float | None = None
    high: float | None = None
    replica: int | None = None
    definition: str = ""


@dataclass(frozen=True)
class Samples:
    """The raw observations: files beside `run.json`, one for each replica; times in nanoseconds of `clock`."""

    files: tuple[str, ...] = ("samples.csv",)
    columns: tuple[str, ...] = ("i", "epoch", "t_start_ns", "t_stop_ns", "items", "phase", "flag")
    clock: str = "CLOCK_MONOTONIC"


@dataclass(frozen=True)
class Verdict:
    """End of a run. `failure` is a class of :data:`dnnsuite._runs.failures.CLASSES`, None where all went well."""

    status: Status
    failure: str | None = None
    message: str = ""

    @property
    def ok(self) -> bool:
        """True if the run ended well."""
        return self.status == "ok"

    @classmethod
    def good(cls) -> Verdict:
        """Make the verdict of a run that ended well."""
        return cls("ok")

    @classmethod
    def failed(cls, failure: str, message: str) -> Verdict:
        """Make the verdict of a run that failed."""
        return cls("failed", failure, message)


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
    for part in ("", "machine", "device", "isolation", "started", "verdict", "samples"):
        _check_types(getattr(record, part) if part else record, f" of the {part}" if part else "")
    for name in (*_COUNTS, *_AMOUNTS, "seed"):
        check_value(name, getattr(record.machine if name == "cpus" else record, name))
    if odd := next((each for each in record.versions.items() if not isinstance(each[1] or "", str)), None):
        raise BadRecord(f"version of {odd[0]} is {odd[1]!r}: not a text")
    values: dict[tuple[str, int | None], float] = {}
    for metric in record.metrics:
        _check_metric(metric)
        first = values.setdefault((metric.name, metric.replica), metric.value)
        if first != metric.value and not first != first:
            raise BadRecord(f"{metric.name} is {first} and {metric.value}: two values of one metric")
    return record


def _check_types(holder: Any, of: str) -> None:
    """Refuse a text, a list of texts or an object that is of another type, in a record or a part of it."""
    for each in fields(holder) if holder is not None else ():
        name, value = f"{each.name}{of}", getattr(holder, each.name)
        if each.type == "str" or (each.type == "str | None" and value is not None):
            if not isinstance(value, str):
                raise BadRecord(f"{name} is {value!r}: not a text")
        elif each.type == "tuple[str, ...]":
            if not isinstance(value, tuple) or not all(isinstance(text, str) for text in value):
                raise BadRecord(f"{name} is {value!r}: not a list of texts")
        elif str(each.type) in ("Json", "Mapping[str, str]") and not isinstance(value, Mapping):
            raise BadRecord(f"{name} is {value!r}: not an object")


def _check_metric(metric: Metric) -> None:
    _check_types(metric, " of a metric")
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


MODES = ("serial", "concurrent", "mps", "mig", "hfta")
