# SPDX-License-Identifier: MIT
"""The record of a run: one typed form of `run.json` for every kind of run there is."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, TypeVar, get_args

from ..errors import Error

__all__ = [
    "FASTEST",
    "KINDS",
    "VERSION",
    "WITH_LOADER",
    "BadRecord",
    "Device",
    "Isolation",
    "Kind",
    "Machine",
    "Metric",
    "Moment",
    "RunRecord",
    "Samples",
    "Status",
    "Verdict",
    "checked",
    "data_source",
    "new_id",
]

VERSION = 2  # of the form below; 1 is what workflows and suites each wrote in a form of their own

Kind = Literal["workflow", "suite", "training", "trial", "profile", "throughput"]
Status = Literal["ok", "failed"]
KINDS: tuple[str, ...] = get_args(Kind)

WITH_LOADER = "throughput/with loader"  # name of a second rate: batches come from a loader of files
MOST = 2**62  # that a count or a seed can be; tables keep them in 64 bits
FASTEST = 1e30  # items per second; sums of larger figures would overflow
_TEXTS = (
    "id",
    "plan_id",
    "plan",
    "job",
    "mode",
    "precision",
    "unit",
    "share",
    "preset",
    "data",
    "job_version",
    "variant",
    "feed",
    "page_cache",
)

# Free-form parts of a record: whatever JSON can hold.
Json = Mapping[str, Any]
T = TypeVar("T")


class BadRecord(Error):
    """A `run.json` that cannot be read: the message names the file and what is wrong in it."""


def data_source(provenance: Any) -> str:
    """The source of the data in a job's provenance; empty where it does not say."""
    data = provenance.get("data") if isinstance(provenance, Mapping) else None
    source = data.get("source") if isinstance(data, Mapping) else data
    return str(source) if source else ""


def new_id() -> str:
    """An id for a run or a plan of runs. Directories may be renamed and copied; ids tell them apart."""
    return uuid.uuid4().hex


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
        """The present."""
        seconds, monotonic_ns = time.time(), time.monotonic_ns()
        whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
        return cls(f"{whole}.{int(seconds * 1000) % 1000:03d}Z", monotonic_ns)


@dataclass(frozen=True)
class Machine:
    """The computer a run was on. `gpus` are names, one for each GPU; `driver` is NVIDIA's, empty without one."""

    hostname: str = ""
    cpu_model: str = ""
    cpus: int = 0
    memory_bytes: int = 0
    gpus: tuple[str, ...] = ()
    driver: str = ""


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
        level: what was obtained: cgroup, affinity or none; `unknown` in a record that does not say.
        asked: what was asked for.
        details: what the level consists of, and why it is not a stronger one.
    """

    level: str = "unknown"
    asked: str = ""
    details: Json = field(default_factory=dict)


@dataclass(frozen=True)
class Metric:
    """One figure of a run, with a 95 % interval where one is known.

    Attributes:
        name: as throughput or time/step.
        replica: which worker process it is of; None for the whole run.
        definition: how it was computed, where the name does not say it.
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
        """A run that ended well."""
        return cls("ok")

    @classmethod
    def failed(cls, failure: str, message: str) -> Verdict:
        """A run that did not."""
        return cls("failed", failure, message)


@dataclass(frozen=True)
class RunRecord:
    """One run: what it was asked to do, where and how it ran, and what it found.

    Attributes:
        id, plan_id: of this run, and of the plan (workflow, suite, sweep) it belongs to.
        variant: what tells this configuration of the job from others of one plan, as `batch_size=16`.
        changed: settings that are not the job's own, by name.
        feed: source of the batches in the timed loop, `memory` or `loader`; empty where it is not known.
        skipped_steps: share of the steps that the loss scaling left out.
        page_cache: `cold` if the job's files were dropped from it before, `as found` if not; empty where not known.
        plan: the plan's name, as `baselines` or `bert`.
        asked: options as the user gave them. resolved: settings as they were in force.
        job_version: changes when what the job computes changes; rates of two versions are not pooled.
        data: where the data came from, as `synthetic` or `digits (scikit-learn)`.
        mode: how processes share the device: serial, concurrent, mps, mig, hfta, ddp, or `shares` in a suite.
        B: models trained at once, over all processes.
        repeat: which repetition, from 0. share: which share of the machine, empty where it was not cut.
        processes, threads: worker processes of the run, and CPU threads of each.
        items_per_step: over all models of one process.
        disturbances: what a reader of the figures must know, as `throttled` or `no steady state`.
        window: what the figures were computed from: dropped warm-up, interval, steady state.
        details: what only this kind of run has.
    """

    id: str
    kind: Kind
    plan_id: str
    plan: str
    job: str
    mode: str
    precision: str
    B: int
    repeat: int
    verdict: Verdict
    machine: Machine
    device: Device
    started: Moment
    unit: str
    seconds: float = 0.0
    share: str = ""
    copies: int = 1
    job_version: str = ""
    preset: str = ""
    data: str = "unknown"
    variant: str = ""
    changed: Json = field(default_factory=dict)
    feed: str = ""
    skipped_steps: float = 0.0
    page_cache: str = ""
    seed: int = 0
    batch_size: int = 0
    processes: int = 1
    threads: int = 0
    items_per_step: float = 0.0
    isolation: Isolation = field(default_factory=Isolation)
    versions: Mapping[str, str] = field(default_factory=dict)  # dnnsuite, torch, python, …
    commit: str = ""  # of dnnsuite, where it runs from a checkout
    metrics: tuple[Metric, ...] = ()
    samples: Samples | None = None
    disturbances: tuple[str, ...] = ()
    asked: Json = field(default_factory=dict)
    resolved: Json = field(default_factory=dict)
    window: Json = field(default_factory=dict)
    details: Json = field(default_factory=dict)
    version: int = VERSION

    @property
    def ok(self) -> bool:
        """True if the run ended well."""
        return self.verdict.ok

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON keeps them."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunRecord:
        """The record that :meth:`to_dict` made, checked.

        Unknown keys are left out, so that a later version with more of them can still be read.

        Raises:
            BadRecord: a key is missing or has a value that cannot be; the message names it.
        """
        try:
            if values["version"] > VERSION:
                raise BadRecord(f"version {values['version']} is newer than {VERSION}: upgrade dnnsuite")
            own = _known(cls, values)
            own |= {
                "verdict": _made(Verdict, values["verdict"]),
                "machine": _made(Machine, values["machine"]),
                "device": _made(Device, values["device"]),
                "started": _made(Moment, values["started"]),
                "isolation": _made(Isolation, values.get("isolation") or {}),
                "metrics": tuple(_metric(each) for each in _list_of(values, "metrics")),
                "samples": _made(Samples, values["samples"]) if values.get("samples") else None,
                "disturbances": _list_of(values, "disturbances"),
            }
            record = cls(**own)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise BadRecord(f"not the record of a run: {error!r}") from error
        return checked(record)


def _known(kind: type[T], values: Mapping[str, Any]) -> dict[str, Any]:
    names = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    return {name: value for name, value in values.items() if name in names}


def _made(kind: type[T], values: Mapping[str, Any]) -> T:
    """One part of a record; JSON's lists become the tuples that a frozen dataclass holds."""
    own = _known(kind, values)
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in own.items()})


def _list_of(values: Mapping[str, Any], name: str) -> tuple[Any, ...]:
    """A list that may be missing. A text is none: its letters would be taken for its entries."""
    found = values.get(name) or ()
    if not isinstance(found, (list, tuple)):
        raise BadRecord(f"{name} is {found!r}: not a list")
    return tuple(found)


def _metric(values: Mapping[str, Any]) -> Metric:
    """A metric; JSON has no NaN, so its null stands for one."""
    made = _made(Metric, values)
    return replace(made, value=math.nan) if made.value is None else made


def checked(record: RunRecord) -> RunRecord:
    """`record`, if every value in it is one that a run can have.

    Raises:
        BadRecord: one is not; the message names it.
    """
    if record.kind not in KINDS:
        raise BadRecord(f"kind is {record.kind!r}; known: {', '.join(KINDS)}")
    if record.verdict.status not in get_args(Status):
        raise BadRecord(f"status is {record.verdict.status!r}; known: {', '.join(get_args(Status))}")
    for name in _TEXTS:
        value = getattr(record, name)
        if not isinstance(value, str):
            raise BadRecord(f"{name} is {value!r}: not a text")
    for name in ("B", "repeat", "copies"):
        value = getattr(record, name)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST:
            raise BadRecord(f"{name} is {value!r}: not a count")
    for name in ("seconds", "skipped_steps", "items_per_step"):
        value = getattr(record, name)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < FASTEST:
            raise BadRecord(f"{name} is {value!r}: not a number that it can be")
    for name in ("changed", "asked", "resolved", "window", "details", "versions"):
        if not isinstance(getattr(record, name), Mapping):
            raise BadRecord(f"{name} is {getattr(record, name)!r}: not an object")
    for metric in record.metrics:
        _check_metric(metric)
    _check_parts(record)
    return record


def _check_parts(record: RunRecord) -> None:
    """Raise for a text or a number within a part of the record that is none."""
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
        "machine's hostname": machine.hostname,
        "machine's cpu_model": machine.cpu_model,
        "machine's driver": machine.driver,
        "device's type": device.type,
        "device's name": device.name,
        "isolation's level": record.isolation.level,
        "started's utc": record.started.utc,
        "verdict's message": verdict.message,
        "verdict's failure": verdict.failure or "",
        "commit": record.commit,
        **{f"version of {name}": value or "" for name, value in record.versions.items()},
    }
    for name, value in texts.items():
        if not isinstance(value, str):
            raise BadRecord(f"{name} is {value!r}: not a text")
    counts = ("cpus of the machine", machine.cpus), ("batch_size", record.batch_size)
    for name, count in (
        *counts,
        ("threads", record.threads),
        ("processes", record.processes),
        ("seed", record.seed),
    ):
        if isinstance(count, bool) or not isinstance(count, int) or not -MOST <= count <= MOST:
            raise BadRecord(f"{name} is {count!r}: not a whole number that it can be")


def _check_metric(metric: Metric) -> None:
    for name, text in (("name", metric.name), ("unit", metric.unit), ("definition", metric.definition)):
        if not isinstance(text, str):
            raise BadRecord(f"{name} of a metric is {text!r}: not a text")
    if metric.replica is not None and (
        isinstance(metric.replica, bool) or not isinstance(metric.replica, int)
    ):
        raise BadRecord(f"{metric.name}: replica is {metric.replica!r}: not a whole number")
    for name in ("value", "low", "high"):
        value = getattr(metric, name)
        if value is None and name != "value":
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise BadRecord(f"{metric.name}: {name} is {value!r}: not a number")
        if isinstance(value, int) and abs(value) > MOST:
            raise BadRecord(
                f"{metric.name}: {name} has {len(str(value))} digits: not a number that it can be"
            )
    if metric.name.partition("/")[0] == "throughput" and not (
        math.isnan(metric.value) or 0 <= metric.value < FASTEST
    ):
        raise BadRecord(f"throughput is {metric.value}: no rate is negative, or {FASTEST:g} and more")
