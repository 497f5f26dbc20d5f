# SPDX-License-Identifier: MIT
"""The environment of a copy: machine, versions, device and clocks, and hashes of its job."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import host
from .._runs import facts

if TYPE_CHECKING:
    from ..jobs import Job


def hashes(job: type, arguments: Mapping[str, Any]) -> dict[str, str]:
    """SHA-256 of the job's source, and of it with its arguments (`job`): equal where the same was run."""
    source = facts.source_hash(job)
    words = json.dumps({k: v for k, v in arguments.items() if k not in _PER_COPY}, sort_keys=True, default=str)
    return {"source": source, "job": hashlib.sha256((source + words).encode()).hexdigest()}


_PER_COPY = ("seed", "jr_id", "vcd", "cpu_cores", "report")  # arguments that tell copies apart


def environment(job: Job, uuids: list[str]) -> dict[str, Any]:
    """Machine, versions, device and clocks at the end of the window. `uuids` are of the GPUs of the share."""
    torch = sys.modules.get("torch")  # a job that works without it is not to wait for it
    versions = host.versions()
    return {
        "machine": host.describe(),
        "versions": {**versions, "torch": str(torch.__version__)} if torch else versions,
        "threads": torch.get_num_threads() if torch else None,
        "device": job.config.device,
        "device_uuids": uuids,
        "precision": job.config.precision,
        "clocks": _clocks(uuids),
    }


def _clocks(uuids: list[str]) -> dict[str, Any]:
    """Clocks of the GPUs and of the fastest CPU right now, in hertz; what cannot be read is absent."""
    found: dict[str, Any] = {}
    cpus = [
        _number(Path(f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq")) for cpu in os.sched_getaffinity(0)
    ]
    if known := [1000.0 * kilohertz for kilohertz in cpus if kilohertz is not None]:
        found["cpu_max_hz"] = max(known)
    if uuids:
        found["gpus"] = _gpu_clocks(uuids)
    return found


def _gpu_clocks(uuids: list[str]) -> list[dict[str, Any]]:
    try:
        import pynvml  # type: ignore[import-untyped]

        pynvml.nvmlInit()
    except Exception:  # no driver, or none that answers: clocks are a remark, never a reason to fail
        return []
    found = []
    for uuid in uuids:
        try:
            handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            sm, memory = (pynvml.nvmlDeviceGetClockInfo(handle, kind) for kind in (1, 2))  # NVML_CLOCK_SM, _MEM
            reasons = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
        except pynvml.NVMLError:
            continue
        found.append({"uuid": uuid, "sm_hz": sm * 1e6, "memory_hz": memory * 1e6, "throttle_reasons": reasons})
    return found


def _number(path: Path) -> float | None:
    try:
        return float(path.read_text())
    except (OSError, ValueError):
        return None
