# SPDX-License-Identifier: MIT
"""Runs of mila-iqia/milabench, the successor of mila-iqia/training: one file of events per process."""

from __future__ import annotations

import codecs
import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from .._files import regular
from .._runs.failures import classify_exit
from ..errors import Error, reason
from .intervals import mean
from .mila import count_of, numbered, rate_of, with_copies
from .table import Row, values_of

_REPEAT = re.compile(r"R\d+$")
_BATCH_SIZE = re.compile(r"--batch[-_]size$")
_BEGIN = b'{"event"'
_FEWEST_TRIMMED = 5  # rates, from which on the least and the greatest are left out


def rows_of_milabench(directory: Path, name: str | None = None) -> tuple[list[Row], list[str]]:
    """Return (rows, a sentence for each damaged file) of the `*.data` files below a directory, of the run `name` or
    of any.

    The rate of a process is the one that `milabench report` prints: the mean of the rates it recorded, without the
    least and the greatest. A run counts as failed by milabench's rule.
    """
    rows: list[Row] = []
    problems: list[str] = []
    for path in sorted(directory.rglob("*.data")):
        if not _is_stream(path):
            continue
        try:
            found = _read(path)
            if found.config and name in (None, _run_name(path, found)):
                with values_of(f"{path}: not a run of milabench"):
                    rows.append(_row(path, directory, found))
        except Error as error:
            problems.append(f"skipped: {error}")
    return numbered(with_copies(rows, lambda row: (row.run, row.job))), problems


@dataclass
class _Process:
    """Events of one process."""

    config: dict[str, Any] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)
    start: dict[str, Any] = field(default_factory=dict)
    end: dict[str, Any] = field(default_factory=dict)
    rates: list[float] = field(default_factory=list)
    unit: str = "items/s"
    nan: bool = False
    stopped: bool = False
    errors: list[str] = field(default_factory=list)


def _is_stream(path: Path) -> bool:
    """True if a file begins as milabench's do; others call their files `.data`, too."""
    try:
        with open(regular(path), "rb") as file:
            return file.read(len(_BEGIN) + 3).removeprefix(codecs.BOM_UTF8).startswith(_BEGIN)
    except OSError:
        return False


def _read(path: Path) -> _Process:
    found = _Process()
    try:
        for number, event in enumerate(_events(path), 1):
            with values_of(f"{path}:{number}: not an event of milabench"):
                _take(found, event)
    except (OSError, UnicodeDecodeError) as error:
        raise Error(f"{path}: {reason(error)}") from error
    return found


def _events(path: Path) -> Iterator[Any]:
    """Yield the events of a file, a line each. A last line that was cut, as a kill leaves it, is left out."""
    with open(regular(path), encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                yield json.loads(line)
            except (ValueError, RecursionError) as error:
                if not line.endswith("\n") and number > 1:
                    return
                raise Error(f"{path}:{number}: not an event of milabench: {error}") from error


def _take(found: _Process, event: Mapping[str, Any]) -> None:
    kind, data = event["event"], event.get("data")
    if kind in ("config", "meta", "start", "end"):
        setattr(found, kind, dict(data or {}))
    elif kind == "stop":
        found.stopped = True
    elif kind == "error" and isinstance(data, Mapping):
        found.errors.append(f"{data.get('type') or 'error'}: {data.get('message') or ''}".rstrip(": "))
    elif kind == "data" and isinstance(data, Mapping):
        if (loss := data.get("loss")) is not None:
            found.nan = found.nan or math.isnan(float(loss))
        if data.get("task") == "train" and data.get("rate") is not None:
            found.rates.append(rate_of(data["rate"]))
            found.unit = str(data.get("units") or found.unit)


def _failure(found: _Process) -> tuple[str | None, str]:
    """Return (class, message) of what went wrong; (None, "") for a process that milabench counts as a success."""
    if found.rates and (found.stopped or (found.end.get("return_code") == 0 and not found.nan)):
        return None, ""
    if found.errors:
        is_import = found.errors[-1].startswith("ModuleNotFoundError")
        return "unavailable" if is_import else classify_exit(1, found.errors[-1])[0], found.errors[-1]
    if found.nan:
        return "nan", "a loss is not a number"
    if not found.end:
        return "crash", "it did not end"
    if (status := found.end.get("return_code")) != 0:
        return "crash", f"it ended with status {status}"
    return "crash", "it recorded no rate of training"


def _run_name(path: Path, found: _Process) -> str:
    return str(found.config.get("run_name") or path.parent.name)


def _row(path: Path, directory: Path, found: _Process) -> Row:
    config, meta = found.config, found.meta
    failure, message = _failure(found)
    kept = sorted(found.rates)[1:-1] if len(found.rates) >= _FEWEST_TRIMMED else found.rates
    rate = math.nan if failure else mean(kept)
    unit = found.unit
    run = _run_name(path, found)
    tags = [str(tag) for tag in config.get("tag") or ()]
    repeats = [tag for tag in tags if _REPEAT.match(tag)]
    plan = hashlib.sha256(f"milabench:{directory.resolve()}".encode()).hexdigest()[:32]
    seconds = float(found.end.get("time", math.nan)) - float(found.start.get("time", math.nan))
    versions = meta.get("milabench") or {}
    return Row(
        job=str(config["name"]),
        device=str(config.get("arch") or (config.get("system") or {}).get("arch") or ""), precision="unknown",
        mode="shares", value=rate, seed_rate=rate, unit=unit, item=unit.removesuffix("/s"),
        seed_unit=unit.removesuffix("/s"), status="failed" if failure else "ok", failure=failure,
        message=message, run="/".join([run, *repeats]), kind="milabench", plan=run, plan_id=plan,
        plan_path=str(directory), run_id=f"{plan}/{path.relative_to(directory).as_posix()}",
        share=_share(config, tags), job_version=str(versions.get("commit") or "")[:12],
        batch_size=_batch_size(found.start.get("command") or ()), started=_started(found.start.get("time")),
        seconds=seconds, path=str(path), **_machine(config, meta),
    )  # fmt: skip


def _machine(config: Mapping[str, Any], meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns that say on what machine a process ran, and with which versions."""
    cpu = meta.get("cpu") or {}
    return {
        "gpus": _gpu(config, meta),
        "hostname": _hostname(config, meta),
        "cpu_model": str(cpu.get("brand") or ""),
        "cpus": count_of(cpu.get("count")),
        "driver": str(((meta.get("accelerators") or {}).get("system") or {}).get("DRIVER_VERSION") or ""),
        "torch": str((meta.get("pytorch") or {}).get("torch") or ""),
    }


def _share(config: Mapping[str, Any], tags: Sequence[str]) -> str:
    """Return the device that a process had to itself, the number of a job, or `all` for the machine."""
    if config.get("device") is not None:
        return str(config["device"])
    plan = config.get("plan") or {}
    number = config.get("job-number")
    if number is None:
        number = next((tag for tag in tags if tag.isdigit()), None)
    return "all" if number is None or count_of(plan.get("n")) <= 1 else str(number)


def _batch_size(command: Sequence[Any]) -> int:
    words = [str(word) for word in command]
    for word, value in itertools.pairwise(words):
        if _BATCH_SIZE.match(word) and value.isdigit():
            return count_of(int(value))
    return 0


def _gpu(config: Mapping[str, Any], meta: Mapping[str, Any]) -> str:
    devices = (meta.get("accelerators") or {}).get("gpus") or {}
    own = devices.get(str(config.get("device")))
    chosen = [own] if own else [*devices.values()]
    return ", ".join(dict.fromkeys(str(each.get("product") or "") for each in chosen))


def _hostname(config: Mapping[str, Any], meta: Mapping[str, Any]) -> str:
    own = (config.get("system") or {}).get("self") or {}
    return str((meta.get("os") or {}).get("nodename") or own.get("hostname") or "")


def _started(time_s: Any) -> str:
    if time_s is None:
        return ""
    return datetime.fromtimestamp(float(time_s), tz=timezone.utc).isoformat(timespec="seconds")
