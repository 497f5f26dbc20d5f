# SPDX-License-Identifier: MIT
"""Records of earlier versions: a workflow's `run.json` (format 1) and a suite's (schema 1) as :class:`RunRecord`."""

from __future__ import annotations

import calendar
import hashlib
import math
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .record import RunRecord, data_source
from .record_parts import BadRecord, Device, Isolation, Json, Machine, Metric, Moment, Samples, Verdict, checked

_WORKFLOW_SAMPLES = ("i", "epoch", "t_start_ns", "t_stop_ns", "items")
_SUITE_SAMPLES = ("i", "t_start_ns", "t_stop_ns", "items", "phase", "flag")
# What has a field of its own in a record; the rest of a workflow's run.json goes to `details` under its own name.
_WORKFLOW_DETAILS = (
    "width", "epochs", "iters_per_epoch", "configs", "variables", "load_before", "load_after", "replicas",
    "equality",
)  # fmt: skip
_SUITE_DETAILS = (
    "key", "program", "index", "scope", "seed_unit", "number", "arguments", "hashes", "data_wait_share", "losses",
    "contention", "setup_s", "provenance", "environment", "items_per_batch",
)  # fmt: skip


def is_old(values: Any) -> bool:
    """True if `values` has the keys of a record from before version 2."""
    return isinstance(values, Mapping) and "version" not in values and "job" in values


def from_old(values: Mapping[str, Any], path: Path) -> RunRecord:
    """Convert an old `run.json` into a record.

    Args:
        values: the file's contents.
        path: the file. Old records have no ids: theirs are derived from it, so two directories of one name stay two.

    Raises:
        BadRecord: a key is missing or has a value that cannot be; the message names it.
    """
    convert = _suite if "repeat_index" in values or "schema" in values else _workflow
    try:
        return checked(convert(values, path))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise BadRecord(f"not the record of a run: {error!r}") from error


def _id(kind: str, path: Path) -> str:
    return hashlib.sha256(f"{kind}:{path.resolve()}".encode()).hexdigest()[:32]


def _plan_folder(path: Path) -> Path:
    """Return the output directory that a run's file lies in."""
    runs = path.resolve().parent.parent
    return runs.parent if runs.name == "runs" else runs


def _workflow(old: Mapping[str, Any], path: Path) -> RunRecord:
    settings: Json = old.get("settings") or {}
    configs: Sequence[Json] = old.get("configs") or ()
    config: Json = configs[0] if configs else settings
    replicas: Sequence[Json] = old.get("replicas") or ()
    processes = int(old.get("processes") or 1)
    details = {name: old[name] for name in _WORKFLOW_DETAILS if name in old}
    return RunRecord(
        id=_id("run", path), kind="workflow", plan_id=_id("plan", _plan_folder(path)), plan=old["job"],
        job=old["job"], mode=old["mode"], precision=old["precision"], B=old["B"], repeat=old["repeat"],
        verdict=_verdict(old), machine=_machine(old.get("machine")), device=Device(old["device"],
        str(old.get("device_model") or "")), started=Moment(_utc(old.get("started")), 0), unit=old["unit"],
        seconds=float(old.get("seconds") or 0.0), copies=1, preset=str(settings.get("preset") or ""),
        data=_data(replicas, config), seed=int(config.get("seed") or 0),
        batch_size=int(config.get("batch_size") or 0), processes=processes,
        threads=int(config.get("threads") or 0) if configs else 0,
        items_per_step=float(replicas[0].get("items_per_step") or 0) if replicas else 0.0,
        isolation=Isolation(details=dict(old.get("isolation") or {})),
        versions=dict(old.get("versions") or {}), metrics=tuple(_metric(each) for each in old["metrics"]),
        samples=_workflow_samples(old, processes), resolved=dict(settings),
        window=dict(old.get("window") or {}), details=details, version=1,
    )  # fmt: skip


def _workflow_samples(old: Mapping[str, Any], processes: int) -> Samples | None:
    if old["status"] != "ok":
        return None
    one = ("samples.csv",)
    files = one if processes == 1 else tuple(f"idx{i}/samples.csv" for i in range(processes))
    return Samples(files, _WORKFLOW_SAMPLES)


def _metric(old: Mapping[str, Any]) -> Metric:
    return Metric(
        old["name"], _number(old["value"]), old["unit"], _end(old.get("low")), _end(old.get("high")),
        old.get("replica"),
    )  # fmt: skip


def _suite(old: Mapping[str, Any], path: Path) -> RunRecord:
    config: Json = old.get("config") or {}
    environment: Json = old.get("environment") or {}
    isolation: Json = old.get("isolation") or {}
    good = old["status"] == "ok"
    return RunRecord(
        id=_id("run", path), kind="suite", plan_id=_id("plan", _plan_folder(path)),
        plan=str(old.get("suite") or ""), job=old["job"], mode="shares",
        precision=str(config.get("precision") or "unknown"), B=1, repeat=old["repeat_index"],
        verdict=_verdict(old), machine=_machine(environment.get("machine")), device=_suite_device(config,
        environment), started=Moment(_utc(old.get("started")), 0), unit=old["unit"],
        seconds=float(old.get("elapsed_s") or 0.0),
        share="all" if old["scope"] == "all" else str(old["slot"]), copies=old["copies"],
        job_version=str((old.get("hashes") or {}).get("job") or ""), preset=str(old.get("preset") or ""),
        data=data_source(old.get("provenance")) or str(config.get("data") or "unknown"),
        seed=int(config.get("seed") or 0), batch_size=int(config.get("batch_size") or 0),
        threads=int(config.get("threads") or 0), items_per_step=float(old.get("items_per_batch") or 0.0),
        isolation=Isolation(str(isolation.get("level") or "unknown"), details=isolation),
        versions=_suite_versions(environment), metrics=_rate(old) if good else (),
        samples=Samples(columns=_SUITE_SAMPLES) if good else None, disturbances=tuple(old.get("flags") or ()),
        window={name: old[name] for name in ("dropped", "kept", "window_s", "steady") if name in old},
        details=_suite_details(old), version=1,
    )  # fmt: skip


def _suite_versions(environment: Json) -> dict[str, str]:
    versions = dict(environment.get("versions") or {})
    if environment.get("torch"):
        versions.setdefault("torch", str(environment["torch"]))
    return versions


def _suite_device(config: Json, environment: Json) -> Device:
    return Device(
        str(config.get("device") or "unknown").split(":")[0],
        str(environment.get("device_name") or ""),
        tuple(environment.get("device_uuids") or ()),
    )


def _suite_details(old: Mapping[str, Any]) -> dict[str, Any]:
    details = {name: old[name] for name in _SUITE_DETAILS if name in old}
    return {**details, "observations": old.get("repeat"), "job_metrics": dict(old.get("metrics") or {})}


def _rate(old: Mapping[str, Any]) -> tuple[Metric, ...]:
    """Return the rate of a suite's run; none where the file has none."""
    if old.get("rate_per_s") is None:
        return ()
    low, high = old.get("rate_interval_per_s") or (None, None)
    return (Metric("throughput", _number(old["rate_per_s"]), f"{old['unit']}/s", _end(low), _end(high)),)


def _verdict(old: Mapping[str, Any]) -> Verdict:
    failure = old.get("failure")
    if old["status"] != "ok":
        failure = failure or "crash"
    return Verdict(old["status"], failure, str(old.get("message") or ""))


def _machine(old: Json | None) -> Machine:
    old = old or {}
    gpus = [gpu if isinstance(gpu, Mapping) else {"name": gpu} for gpu in old.get("gpus") or ()]
    return Machine(
        cpu_model=str(old.get("cpu_model") or ""),
        cpus=int(old.get("cpus") or 0),
        memory_bytes=int(old.get("memory_bytes") or 0),
        gpus=tuple(str(gpu.get("name", "?")) for gpu in gpus),
        driver=next((str(gpu["driver"]) for gpu in gpus if gpu.get("driver")), ""),
    )


def _data(replicas: Sequence[Json], config: Json) -> str:
    told = data_source(replicas[0].get("provenance")) if replicas else ""
    return told or str(config.get("data") or "unknown")


def _number(value: Any) -> float:
    """Read a number; null stands for NaN."""
    if isinstance(value, bool) or not isinstance(value, (int, float, type(None))):
        raise ValueError(f"{value!r} is not a number")
    return math.nan if value is None else float(value)


def _end(value: Any) -> float | None:
    """Read an end of an interval; null where it is not known or infinite."""
    return None if value is None else _number(value)


def _utc(started: Any) -> str:
    """Convert a workflow's time (with its offset) or a suite's (local, as 20261121-051612-250) to ISO 8601 in UTC."""
    text = str(started or "")
    if match := re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)([+-])(\d\d)(\d\d)", text):
        seconds = calendar.timegm(time.strptime(match[1], "%Y-%m-%dT%H:%M:%S"))
        offset = (int(match[3]) * 60 + int(match[4])) * 60
        seconds += offset if match[2] == "-" else -offset
        return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(seconds))
    if match := re.fullmatch(r"(\d{8}-\d{6})-(\d{3})", text):
        seconds = int(time.mktime(time.strptime(match[1], "%Y%m%d-%H%M%S")))
        return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{match[2]}Z"
    return text
