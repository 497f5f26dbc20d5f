# SPDX-License-Identifier: MIT
"""What a copy ran in, and what from outside may have disturbed it."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import resource
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import host
from .._execution.limits import peak_rss_bytes

if TYPE_CHECKING:
    from ..jobs import Training

__all__ = ["Pressure", "hashes", "process"]

_STEAL_PCT = 2.0  # of the CPUs' time taken by the hypervisor: more than the suite's own noise
_PREEMPTED_PER_S = 100.0  # involuntary switches per thread of a process that has its CPUs to itself: a few


def hashes(job: type, arguments: Mapping[str, Any]) -> dict[str, str]:
    """SHA-256 of the job's source, and of it with its arguments (`job`): equal where the same was run."""
    path = inspect.getsourcefile(job)
    source = Path(path).read_bytes() if path else job.__qualname__.encode()
    words = json.dumps(
        {k: v for k, v in arguments.items() if k not in _PER_COPY}, sort_keys=True, default=str
    )
    return {
        "source": hashlib.sha256(source).hexdigest(),
        "job": hashlib.sha256(source + words.encode()).hexdigest(),
    }


_PER_COPY = ("seed", "jr_id", "vcd", "cpu_cores", "report")  # arguments that tell copies apart


def process(spec: Mapping[str, Any], job: Training) -> dict[str, Any]:
    """The process and its device, as they are at the end of the window."""
    import torch

    about: dict[str, Any] = {
        "machine": host.describe(),
        "versions": {**host.versions(), "torch": str(torch.__version__)},
        "threads": torch.get_num_threads(),
        "device": str(job.device),
        "device_uuids": spec["device_uuids"],
        "precision": spec["config"]["precision"],
        "peak_rss_bytes": peak_rss_bytes(),
        "memory_limit_bytes": spec["memory_limit_bytes"],
        "clocks": _clocks(spec["device_uuids"]),
    }
    if job.device.type == "cuda":
        about |= {
            "device_name": torch.cuda.get_device_name(job.device),
            "peak_cuda_bytes": torch.cuda.max_memory_allocated(job.device),
            "tf32": torch.backends.cuda.matmul.allow_tf32,
            "cudnn_benchmark": torch.backends.cudnn.benchmark,
        }
    return about


def _clocks(uuids: list[str]) -> dict[str, Any]:
    """Clocks of the GPUs and of the fastest CPU right now, in hertz; what cannot be read is absent."""
    found: dict[str, Any] = {}
    cpus = [_number(Path(f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq"))
            for cpu in os.sched_getaffinity(0)]  # fmt: skip
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
            sm, memory = (
                pynvml.nvmlDeviceGetClockInfo(handle, kind) for kind in (1, 2)
            )  # NVML_CLOCK_SM, _MEM
            reasons = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
        except pynvml.NVMLError:
            continue
        found.append(
            {"uuid": uuid, "sm_hz": sm * 1e6, "memory_hz": memory * 1e6, "throttle_reasons": reasons}
        )
    return found


def _number(path: Path) -> float | None:
    try:
        return float(path.read_text())
    except (OSError, ValueError):
        return None


class Pressure:
    """What others took from this process between its making and :meth:`read`."""

    def __init__(self) -> None:
        self._before = self._now()

    def _now(self) -> tuple[float, float, int, float, float]:
        """(seconds, involuntary switches, threads, stolen jiffies, all jiffies of the CPUs we may use)."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        threads = len(os.listdir("/proc/self/task"))
        mine = {f"cpu{cpu}" for cpu in os.sched_getaffinity(0)}
        rows = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
        times = [list(map(float, row[1:9])) for row in rows if row and row[0] in mine]
        stolen = sum(row[7] for row in times if len(row) > 7)
        return time.monotonic(), float(usage.ru_nivcsw), threads, stolen, sum(map(sum, times))

    def read(self) -> dict[str, Any]:
        """Rates since it was made, and as `flags` what of them is more than noise."""
        (t0, switches0, _, stolen0, all0), now = self._before, self._now()
        seconds = max(now[0] - t0, 1e-9)
        stolen_pct = 100 * (now[3] - stolen0) / max(now[4] - all0, 1.0)
        preempted = (now[1] - switches0) / seconds / max(now[2], 1)
        flags = []
        if stolen_pct > _STEAL_PCT:
            flags.append(f"contaminated: the hypervisor took {stolen_pct:.1f} % of the CPUs' time")
        if preempted > _PREEMPTED_PER_S:
            flags.append(f"contaminated: {preempted:.0f} involuntary switches per thread and second")
        return {
            "stolen_pct": stolen_pct, "involuntary_switches_per_thread_s": preempted,
            "load_average": host.load_average(), "cpu_waiting_pct": _waiting_pct(), "flags": flags,
        }  # fmt: skip


def _waiting_pct() -> float | None:
    """Share of the last ten seconds in which something on the machine waited for a CPU (PSI)."""
    try:
        first = Path("/proc/pressure/cpu").read_text().splitlines()[0]
    except (OSError, IndexError):
        return None
    return float(first.split("avg10=")[1].split()[0])
