# SPDX-License-Identifier: MIT
"""Entries from directories: runs of `dnnsuite run`, and results of mila-iqia/training of either age."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .._files import read_json
from ..errors import Error, InvalidArgument
from ._entries import Entry

__all__ = ["read"]

_SUITE_FILE = "suite.json"


def read(directories: Sequence[Path], name: str | None = None) -> list[Entry]:
    """All entries below `directories`, of the suite called `name` if that is given.

    A directory is an output of `dnnsuite run`, a folder of such, or a folder of the original suite's: one folder per
    run with one file per device (`<name>_<device>.json`), or one file per result (`<name>.<job>.R<run>.D<device>...`).

    Raises:
        InvalidArgument: a directory is missing, or nothing is in it.
        Error: a file is damaged; the message names it.
    """
    found: list[Entry] = []
    for directory in directories:
        if not directory.is_dir():
            raise InvalidArgument(f"{directory}: no such directory")
        entries = list(_own(directory, name) or _mila(directory, name or "*"))
        if not entries:
            called = f" called {name!r}" if name else ""
            raise InvalidArgument(f"{directory}: no results of a suite{called} in it")
        found += entries
    return found


def _own(directory: Path, name: str | None) -> list[Entry]:
    suites = [directory / _SUITE_FILE, *sorted(directory.glob(f"*/{_SUITE_FILE}"))]
    found = []
    for suite in suites:
        if suite.is_file() and name in (None, read_json(suite).get("name")):
            for path in sorted(suite.parent.glob("runs/[!.]*/run.json")):
                found.append(_own_entry(path, read_json(path), suite.parent))
    return found


def _own_entry(path: Path, record: Mapping[str, Any], suite: Path) -> Entry:
    try:
        rate, seed = _rate(record.get("rate_per_s")), record["seed_unit"]
        failure = record.get("failure") if record["status"] == "ok" else record.get("failure") or "crash"
        interval = record.get("rate_interval_per_s")
        return Entry(
            job=record["job"], run=f"{suite.name}/{int(record['repeat_index']):03d}", device=str(record["slot"]),
            rate=rate, seed_rate=_seed_rate(record, rate, float(seed["items"])),
            unit=record["unit"], seed_unit=seed["name"],
            scope=record["scope"], copies=int(record["copies"]),
            interval=(float(interval[0]), float(interval[1])) if interval and None not in interval else None,
            failure=failure or (None if math.isfinite(rate) else "crash"), message=record.get("message") or "",
            isolation=_isolation(record), flags=tuple(record.get("flags") or ()),
            conditions=_own_conditions(record), details=record, path=path,
        )  # fmt: skip
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Error(f"{path}: not the record of a run: {error!r}") from error


def _rate(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _seed_rate(record: Mapping[str, Any], rate: float, items: float) -> float:
    """In what the original counted; of `scaling`, whose target is 1, what each device adds as a share of the first."""
    if record["job"] == "scaling":
        return _rate((record.get("metrics") or {}).get("efficiency"))
    return rate / items


def _isolation(record: Mapping[str, Any]) -> str:
    return str((record.get("isolation") or {}).get("level", "unknown"))


def _own_conditions(record: Mapping[str, Any]) -> dict[str, str]:
    """What must agree for rates to be of the same thing on the same kind of machine."""
    environment, config = record.get("environment") or {}, record.get("config") or {}
    machine = environment.get("machine") or {}
    gpus = [gpu.get("name", "?") for gpu in machine.get("gpus") or []]
    torch = str((environment.get("versions") or {}).get("torch") or environment.get("torch") or "unknown")
    return {
        "job": str((record.get("hashes") or {}).get("job", "unknown"))[:12],
        "unit": record["unit"],
        "device": str(config.get("device", "unknown")).split(":")[0],
        "precision": str(config.get("precision", "unknown")),
        "batch size": str(config.get("batch_size", "unknown")),
        "copies": str(record["copies"]),
        "threads": str(config.get("threads", "unknown")),
        "processor": f"{machine.get('cpu_model', 'unknown')}, {machine.get('cpus', '?')} CPUs",
        "GPUs": ", ".join(gpus) or "none",
        "torch": ".".join(torch.split("+")[0].split(".")[:2]),
    }


def _mila(directory: Path, name: str) -> Iterator[Entry]:
    patterns = (f"{name}[_.]*.json", f"{name}.json")
    for path in sorted({path for pattern in patterns for path in directory.rglob(pattern)}):
        for result in _results(path):
            yield _mila_entry(path, result, directory)


def _results(path: Path) -> list[dict[str, Any]]:
    """The results in a file: one, a list, or a list that was never closed, as the original suite leaves it."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Error(f"{path}: {error}") from error
    if text.startswith("[") and not text.endswith("]"):
        text = re.sub(r",$", "", text) + "]"
    try:
        found = json.loads(text)
    except ValueError as error:
        raise Error(f"{path}: not a result of the suite: {error}") from error
    return found if isinstance(found, list) else [found]


def _mila_entry(path: Path, result: Mapping[str, Any], directory: Path) -> Entry:
    try:
        losses = result.get("batch_loss") or []
        failure = None if result.get("completed", True) else "crash"
        if any(loss is None or math.isnan(loss) for loss in losses):
            failure = "nan"
        rate = math.nan if failure else float(result["train_item"]["avg"])
        folder = path.parent.relative_to(directory).as_posix()
        number = re.search(r"\.R(\w+)\.", path.name)
        return Entry(
            job=result["name"], run=number[1] if number else folder, device=str(result.get("vcd", "")),
            rate=rate, seed_rate=rate, failure=failure,
            message="" if failure is None else "a loss is not finite" if failure == "nan" else "did not complete",
            scope="all" if "," in str(result.get("vcd", "")) else "student",
            conditions={
                name: str(result.get(key, "unknown"))[:12]
                for name, key in (("job", "unique_id"), ("version", "version"))
            } | {"GPUs": str(result.get("gpu", "unknown"))},
            details=result, path=path,
        )  # fmt: skip
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Error(f"{path}: not a result of the suite: {error!r}") from error
