# SPDX-License-Identifier: MIT
"""The record of a run: one typed form of `run.json` for every kind of run there is."""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from .._shown import metric as shown
from .record_parts import (
    FASTEST,
    KINDS,
    WITH_LOADER,
    BadRecord,
    Device,
    Isolation,
    Json,
    Kind,
    Machine,
    Metric,
    Moment,
    Samples,
    Status,
    Verdict,
    checked,
)

__all__ = [
    "FASTEST", "KINDS", "MISSED", "VERSION", "WITH_LOADER", "BadRecord", "Device", "Isolation", "Kind", "Machine",
    "Metric", "Moment", "RunRecord", "Samples", "Status", "Verdict", "checked", "data_source", "new_id", "quality_text",
]  # fmt: skip

VERSION = 2  # of the form below; 1 is what workflows and suites each wrote in a form of their own
MISSED = "target missed"  # of a run whose metric on held-out data is not as good as its target

T = TypeVar("T")


def data_source(provenance: Any) -> str:
    """Return the source of the data in a job's provenance; empty if unknown."""
    data = provenance.get("data") if isinstance(provenance, Mapping) else None
    source = data.get("source") if isinstance(data, Mapping) else data
    return str(source) if source else ""


def quality_text(run: RunRecord) -> str:
    """Format what a run has learned, beside its target; empty where it has none."""
    found = run.details.get("quality")
    if not isinstance(found, Mapping):
        return ""
    bound = "or more" if found["better"] == "more" else "or less"
    verdict = "PASS" if found["reached"] else "MISSED"
    value = "infinite" if found["value"] is None else shown(found["value"])  # which JSON has not
    return f"{found['metric']} {value}, target {shown(found['target'])} {bound}: {verdict}"


def new_id() -> str:
    """Make an id for a run or a plan of runs. Directories may be renamed and copied; ids tell them apart."""
    return uuid.uuid4().hex


@dataclass(frozen=True)
class RunRecord:
    """Record of one run: settings, machine, conditions and results.

    Attributes:
        id, plan_id: ids of this run and of the plan (workflow, suite, sweep) it belongs to.
        variant: settings in which this configuration of the job differs from others of the plan, for example
            `batch_size=16`.
        changed: settings that are not the job's own, by name.
        feed: source of the batches in the timed loop, `memory` or `loader`; empty where it is not known.
        skipped_steps: share of the steps that the loss scaling left out.
        page_cache: `cold` if the job's files were dropped from it before, `as found` if not; empty where not known.
        plan: the plan's name, for example `baselines` or `bert`.
        asked: options as the user gave them.
        resolved: settings as they were in force.
        job_version: changes when what the job computes changes; rates of two versions are not pooled.
        data: source of the data, for example `synthetic` or `digits (scikit-learn)`.
        mode: way in which processes share the device: serial, concurrent, mps, mig, hfta, ddp, or `shares` in a suite.
        B: models trained at once, over all processes.
        repeat: number of the repetition, from 0.
        share: share of the machine; empty where it was not cut.
        processes, threads: worker processes of the run, and CPU threads of each.
        items_per_step: items of a step, over all models of one process.
        disturbances: remarks that a reader of the figures needs, for example `throttled` or `no steady state`.
        window: basis of the figures: dropped warm-up, interval, steady state.
        details: entries that only this kind of run has.
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
        """Return the record as plain values for JSON."""
        found: dict[str, Any] = _plain(self)
        for metric in found["metrics"]:
            if math.isinf(metric["value"]):
                metric["value"] = str(metric["value"])  # which JSON has not
        return found

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunRecord:
        """Make a record from what :meth:`to_dict` returned, checked.

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


_ALREADY_PLAIN = frozenset((str, int, float, bool, dict, type(None)))


def _plain(value: Any) -> Any:
    """Values of a dataclass by name, of its parts too; what they hold beside is plain already, and not copied."""
    if type(value) in _ALREADY_PLAIN:  # most are: a sweep writes thousands of records
        return value
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    names = getattr(type(value), "__dataclass_fields__", None)
    return value if names is None else {name: _plain(each) for name, each in vars(value).items() if name in names}


def _known(kind: type[T], values: Mapping[str, Any]) -> dict[str, Any]:
    names = kind.__dataclass_fields__  # type: ignore[attr-defined]
    return {name: value for name, value in values.items() if name in names}


def _made(kind: type[T], values: Mapping[str, Any]) -> T:
    """Make one part of a record; JSON's lists become the tuples that a frozen dataclass holds."""
    own = _known(kind, values)
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in own.items()})


def _list_of(values: Mapping[str, Any], name: str) -> tuple[Any, ...]:
    """Read a list that may be missing; refuse a text, whose letters would be taken for entries."""
    found = values.get(name) or ()
    if not isinstance(found, (list, tuple)):
        raise BadRecord(f"{name} is {found!r}: not a list")
    return tuple(found)


def _metric(values: Mapping[str, Any]) -> Metric:
    """Make a metric; JSON has no NaN, so its null stands for one, and texts for infinities."""
    made = _made(Metric, values)
    if str(made.value) in ("inf", "-inf"):
        return replace(made, value=float(made.value))
    return replace(made, value=math.nan) if made.value is None else made
