# SPDX-License-Identifier: MIT
"""Facts of the machine for records, and those that must stay the same for a plan to be continued."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import socket
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from .. import host
from .record import Device, Machine

# What must be as it was for runs of two processes to be compared.
_SAME = (
    ("versions", "dnnsuite"),
    ("versions", "torch"),
    ("machine", "cpu_model"),
    ("machine", "cpus"),
    ("machine", "gpus"),
)


def environment() -> dict[str, Any]:
    """{machine, versions} as JSON has them."""
    found: dict[str, Any] = json.loads(json.dumps({"machine": host.describe(), "versions": host.versions()}))
    return found


def changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """List, as sentences, the differences between two environments that forbid continuing a plan in the other."""
    return [
        f"{name} is {now[group].get(name)}, was {then[group].get(name)}"
        for group, name in _SAME
        if now[group].get(name) != then[group].get(name)
    ]


def machine(described: Mapping[str, Any]) -> Machine:
    """Convert the facts of :func:`dnnsuite.host.describe` to a `Machine`."""
    gpus = described.get("gpus") or []
    return Machine(
        hostname=socket.gethostname(),
        cpu_model=described.get("cpu_model") or "",
        cpus=described.get("cpus") or 0,
        memory_bytes=described.get("memory_bytes") or 0,
        gpus=tuple(gpu["name"] for gpu in gpus),
        driver=gpus[0]["driver"] if gpus else "",
        system="; ".join(f"{name}: {value}" for name, value in (described.get("system") or {}).items()),
    )


def device(kind: str, described: Mapping[str, Any], uuids: tuple[str, ...] | None = None) -> Device:
    """Return the device of a run: `kind` as a job takes it; `uuids` of the GPUs it could use, by default all that
    CUDA_VISIBLE_DEVICES leaves."""
    if not kind.startswith("cuda"):
        return Device(kind)
    gpus = described.get("gpus") or []
    names = {gpu.get("uuid", ""): gpu["name"] for gpu in gpus}
    found = _visible(tuple(names)) if uuids is None else uuids
    number = kind.partition(":")[2]
    if uuids is None and number.isdigit():  # one of those
        found = found[int(number) : int(number) + 1]
    return Device("cuda", next((names[uuid] for uuid in found if uuid in names), ""), found)


def _visible(uuids: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of a machine's GPUs that CUDA_VISIBLE_DEVICES names, by number or by the beginning of their id."""
    named = [entry.strip() for entry in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if entry.strip()]
    found = [
        next((uuid for number, uuid in enumerate(uuids) if entry == str(number) or uuid.startswith(entry)), "")
        for entry in named
    ]
    return tuple(uuid for uuid in found if uuid) or uuids


def source_hash(job: type) -> str:
    """SHA-256 of the file that defines a job, or of its name where there is none."""
    path = inspect.getsourcefile(job)
    return hashlib.sha256(Path(path).read_bytes() if path else job.__qualname__.encode()).hexdigest()


@cache
def commit() -> str:
    """Return the commit of dnnsuite where it runs from a checkout, with `+changes` where files differ; else nothing."""
    root = Path(__file__).resolve().parents[3]
    return commit_of(root) if (root / "python" / "dnnsuite").is_dir() else ""


def commit_of(root: Path) -> str:
    """Return the commit of a checkout, with `+changes` where its files are not those; empty for no checkout."""
    if not (root / ".git").exists():
        return ""
    head = _git(root, "rev-parse", "HEAD")
    # Files that git does not know may be code as well; a checkout whose state cannot be told is none to be relied on.
    status = _git(root, "status", "--porcelain", "--", "python", "cpp") if head else ""
    return (head if status == "" else f"{head}+changes") if head else ""


def _git(root: Path, *arguments: str) -> str | None:
    """Output of a command of git; None where it failed."""
    try:
        asked = ["git", "-C", str(root), *arguments]
        said = subprocess.run(asked, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return said.stdout.strip() if said.returncode == 0 else None
