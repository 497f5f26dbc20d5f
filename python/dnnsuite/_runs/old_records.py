# SPDX-License-Identifier: MIT
"""Records of earlier versions: a workflow's `run.json` (format 1) and a suite's (schema 1) as :class:`RunRecord`."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
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


def _common(old: Mapping[str, Any], path: Path, config: Json, machine: Json) -> dict[str, Any]:
    """Fields that both forms of a record have; `config` is that of the job."""
    runs = path.resolve().parent.parent
    failure = old.get("failure") or ("crash" if old["status"] != "ok" else None)
    gpus = [gpu if isinstance(gpu, Mapping) else {"name": gpu} for gpu in machine.get("gpus") or ()]
    return {
        "id": _id("run", path), "plan_id": _id("plan", runs.parent if runs.name == "runs" else runs), "job": old["job"],
        "verdict": Verdict(old["status"], failure, str(old.get("message") or "")),
        "machine": Machine(
            cpu_model=str(machine.get("cpu_model") or ""), cpus=int(machine.get("cpus") or 0),
            memory_bytes=int(machine.get("memory_bytes") or 0),
            gpus=tuple(str(gpu.get("name", "?")) for gpu in gpus),
            driver=next((str(gpu["driver"]) for gpu in gpus if gpu.get("driver")), ""),
        ),
        "started": Moment(_utc(old.get("started")), 0), "unit": old["unit"], "seed": int(config.get("seed") or 0),
        "batch_size": int(config.get("batch_size") or 0), "version": 1,
    }  # fmt: skip


def _workflow(old: Mapping[str, Any], path: Path) -> RunRecord:
    settings: Json = old.get("settings") or {}
    configs: Sequence[Json] = old.get("configs") or ()
    config: Json = configs[0] if configs else settings
    replicas: Sequence[Json] = old.get("replicas") or ()
    processes = int(old.get("processes") or 1)
    files = ("samples.csv",) if processes == 1 else tuple(f"idx{i}/samples.csv" for i in range(processes))
    told = data_source(replicas[0].get("provenance")) if replicas else ""
    return RunRecord(
        **_common(old, path, config, old.get("machine") or {}), kind="workflow", plan=old["job"], mode=old["mode"],
        precision=old["precision"], B=old["B"], repeat=old["repeat"],
        device=Device(old["device"], str(old.get("device_model") or "")),
        seconds=float(old.get("seconds") or 0.0), copies=1, preset=str(settings.get("preset") or ""),
        data=told or str(config.get("data") or "unknown"), processes=processes,
        threads=int(config.get("threads") or 0) if configs else 0,
        items_per_step=float(replicas[0].get("items_per_step") or 0) if replicas else 0.0,
        isolation=Isolation(details=dict(old.get("isolation") or {})), versions=dict(old.get("versions") or {}),
        metrics=tuple(
            Metric(
                each["name"], _number(each["value"]), each["unit"], _end(each.get("low")), _end(each.get("high")),
                each.get("replica"),
            )
            for each in old["metrics"]
        ),
        samples=Samples(files, _WORKFLOW_SAMPLES) if old["status"] == "ok" else None, resolved=dict(settings),
        window=dict(old.get("window") or {}),
        details={name: old[name] for name in _WORKFLOW_DETAILS if name in old},
    )  # fmt: skip


def _suite(old: Mapping[str, Any], path: Path) -> RunRecord:
    config: Json = old.get("config") or {}
    environment: Json = old.get("environment") or {}
    isolation: Json = old.get("isolation") or {}
    good = old["status"] == "ok"
    details = {name: old[name] for name in _SUITE_DETAILS if name in old}
    own = {"torch": str(environment["torch"])} if environment.get("torch") else {}
    return RunRecord(
        **_common(old, path, config, environment.get("machine") or {}), kind="suite",
        plan=str(old.get("suite") or ""), mode="shares", precision=str(config.get("precision") or "unknown"), B=1,
        repeat=old["repeat_index"],
        device=Device(
            str(config.get("device") or "unknown").split(":")[0], str(environment.get("device_name") or ""),
            tuple(environment.get("device_uuids") or ()),
        ),
        seconds=float(old.get("elapsed_s") or 0.0), share="all" if old["scope"] == "all" else str(old["slot"]),
        copies=old["copies"], job_version=str((old.get("hashes") or {}).get("job") or ""),
        preset=str(old.get("preset") or ""),
        data=data_source(old.get("provenance")) or str(config.get("data") or "unknown"),
        threads=int(config.get("threads") or 0), items_per_step=float(old.get("items_per_batch") or 0.0),
        isolation=Isolation(str(isolation.get("level") or "unknown"), details=isolation),
        versions={**own, **(environment.get("versions") or {})}, metrics=_rate(old) if good else (),
        samples=Samples(columns=_SUITE_SAMPLES) if good else None, disturbances=tuple(old.get("flags") or ()),
        window={name: old[name] for name in ("dropped", "kept", "window_s", "steady") if name in old},
        details={**details, "observations": old.get("repeat"), "job_metrics": dict(old.get("metrics") or {})},
    )  # fmt: skip


def _rate(old: Mapping[str, Any]) -> tuple[Metric, ...]:
    """Return the rate of a suite's run; none where the file has none."""
    if old.get("rate_per_s") is None:
        return ()
    low, high = old.get("rate_interval_per_s") or (None, None)
    return (Metric("throughput", _number(old["rate_per_s"]), f"{old['unit']}/s", _end(low), _end(high)),)


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
    for form in ("%Y-%m-%dT%H:%M:%S%z", "%Y%m%d-%H%M%S-%f"):
        with suppress(ValueError):
            moment = datetime.strptime(text, form).astimezone(timezone.utc)
            return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return text
