# SPDX-License-Identifier: MIT
"""The CPUs, the memory and what the kernel lets a measurement do and see."""

from __future__ import annotations

import os
import re
from pathlib import Path

from .. import host
from ._finding import Finding, missing, ok, read, warning

_BUSY = 0.5  # runnable processes per CPU above which a rate says as much about the neighbours as about the code
_STOLEN = 0.01
_LITTLE_MEMORY_BYTES = 2 << 30
_GIB = float(1 << 30)


def cpus(root: Path = Path("/")) -> Finding:
    """Report the CPUs of the machine, those that this process may use, and SMT."""
    allowed, total = host.num_cpus(), os.cpu_count() or 1
    smt = read(root / "sys/devices/system/cpu/smt/active")
    threads = {"0": "one thread per core", "1": "two or more threads per core"}.get(
        smt or "", "threads per core unknown"
    )
    detail = f"{host.describe()['cpu_model']}; {allowed} of {total} CPUs, {threads}"
    if allowed < total:
        return warning(f"{detail}; an affinity mask or a cpuset hides the others", "fine if meant; see `taskset -p $$`")
    return ok(detail)


def cpu_quota(root: Path = Path("/")) -> Finding:
    """Check the quota of CPU time, which stops all threads when it is used up."""
    group = _own_group(root, "cpu")
    limit = None
    if group is not None:
        v2 = (read(group / "cpu.max") or "max").split()
        quota, period = read(group / "cpu.cfs_quota_us"), read(group / "cpu.cfs_period_us")
        if v2[0] != "max":
            limit = int(v2[0]) / int(v2[1])
        elif quota and period and int(quota) > 0:
            limit = int(quota) / int(period)
    if limit is None:
        return ok("none")
    detail = f"{limit:g} CPUs of run time"
    if limit < host.num_cpus():
        return warning(
            f"{detail} for {host.num_cpus()} CPUs: threads are stopped", f"use --threads {max(1, int(limit))}"
        )
    return ok(detail)


def _own_group(root: Path, controller: str) -> Path | None:
    """Return the control group of this process for a controller; None where there is none."""
    return next(iter(host.control_groups(root, controller)), None)


def clocks(root: Path = Path("/")) -> Finding:
    """Check that the clock of the CPUs is fixed, and can be read."""
    cpu = root / "sys/devices/system/cpu"
    governor = read(cpu / "cpu0/cpufreq/scaling_governor")
    if governor is None:
        return missing("clock and governor of the CPUs cannot be read (no cpufreq)", "usual in a virtual machine")
    boost, no_turbo = read(cpu / "cpufreq/boost"), read(cpu / "intel_pstate/no_turbo")
    turbo = boost == "1" or no_turbo == "0"
    detail = f"governor {governor}, turbo {'on' if turbo else 'off' if boost or no_turbo else 'unknown'}"
    if governor != "performance":
        return warning(f"{detail}: the clock follows the load", "cpupower frequency-set -g performance, as root")
    if turbo:
        return warning(f"{detail}: the clock follows the temperature", f"echo 0 > {cpu}/cpufreq/boost, as root")
    return ok(detail)


def load(root: Path = Path("/")) -> Finding:
    """Check that no other work uses this machine now, or its host."""
    one_minute, allowed = os.getloadavg()[0], host.num_cpus()
    ticks = [int(value) for value in (read(root / "proc/stat") or "cpu").splitlines()[0].split()[1:]]
    stolen = ticks[7] / max(1, sum(ticks)) if len(ticks) > 7 else 0.0  # user nice system idle iowait irq softirq steal
    detail = f"{one_minute:.2f} runnable processes on {allowed} CPUs (1 min), {stolen:.1%} of CPU time stolen"
    if one_minute > _BUSY * allowed:
        return warning(f"{detail}: contended", "stop what else runs here before measuring")
    if stolen > _STOLEN:
        return warning(
            f"{detail} by other machines on the same host", "repeat measurements; compare within one workflow"
        )
    return ok(detail)


def memory(root: Path = Path("/")) -> Finding:
    """Report the memory that can be allocated now, within the limits of control groups."""
    available = host.available_memory_bytes(root)
    info = read(root / "proc/meminfo") or ""
    sizes = {name: int(kib) * 1024 / _GIB for name, kib in re.findall(r"^(\w+):\s+(\d+) kB", info, re.MULTILINE)}
    swap = f"swap {sizes.get('SwapTotal', 0.0):.1f} GiB"
    detail = f"{available / _GIB:.1f} of {sizes.get('MemTotal', 0.0):.1f} GiB available, {swap}"
    if available < _LITTLE_MEMORY_BYTES:
        return warning(f"{detail}: few models will fit", "close other programs, or raise the limit of the container")
    return ok(detail)


def huge_pages(root: Path = Path("/")) -> Finding:
    """Transparent huge pages: B-fold tensors touch many small pages without them."""
    setting = read(root / "sys/kernel/mm/transparent_hugepage/enabled")
    if setting is None:
        return missing(
            "this kernel has no transparent huge pages", "nothing to do; large tensors cost more page faults"
        )
    chosen = re.search(r"\[(\w+)\]", setting)
    if chosen and chosen[1] == "never":
        place = "/sys/kernel/mm/transparent_hugepage/enabled"
        return warning("switched off: large tensors cost more page faults", f"echo madvise > {place}, as root")
    return ok(chosen[1] if chosen else setting)


def hardware_counters(root: Path = Path("/")) -> Finding:
    """Cycles, instructions and cache misses by perf_event: a PMU and the permission to use it."""
    paranoid = read(root / "proc/sys/kernel/perf_event_paranoid")
    if paranoid is None:
        return missing("this kernel has no perf_event", "a kernel with CONFIG_PERF_EVENTS")
    devices = root / "sys/bus/event_source/devices"
    if not any((devices / name).exists() for name in ("cpu", "cpu_core", "armv8_pmuv3_0")):
        return missing(
            f"no hardware PMU; software events only (perf_event_paranoid {paranoid})",
            "usual in a virtual machine; a host can pass its PMU through",
        )
    if int(paranoid) > 2 and os.geteuid() != 0:
        return missing(f"perf_event_paranoid is {paranoid}", "sysctl kernel.perf_event_paranoid=2, as root")
    return ok(f"PMU present, perf_event_paranoid {paranoid}")


def control_groups(root: Path = Path("/")) -> Finding:
    """Check that jobs can be given CPUs and memory of their own: a writable group with the controllers."""
    mount = root / "sys/fs/cgroup"
    if not (mount / "cgroup.controllers").is_file():
        return _control_groups_v1(mount)
    kind = "version 2"
    group = _own_group(root, "")
    controllers = set((read(group / "cgroup.controllers") or "").split()) if group else set()
    lacking = {"cpuset", "memory"} - controllers
    if group is None or lacking or not os.access(group, os.W_OK):
        why = f"without {', '.join(sorted(lacking))}" if lacking else "not writable"
        return missing(f"{kind}, own group {why}", "systemd-run --user --scope -p Delegate=yes COMMAND, or run as root")
    return ok(f"{kind}: delegated, with {', '.join(sorted(controllers))}")


def _control_groups_v1(mount: Path) -> Finding:
    found = [name for name in ("cpuset", "memory") if (mount / name / "cgroup.procs").is_file()]
    if not found:
        return missing(f"no control groups in {mount}", "nothing to do: jobs are kept apart by CPU affinity instead")
    kind = "version 1" + (" and 2" if (mount / "unified").is_dir() else "")
    if len(found) < 2 or not all(os.access(mount / name, os.W_OK) for name in found):
        remedy = "run as root, or on a system with control groups of version 2 only"
        return missing(f"{kind}, not writable or without cpuset and memory", remedy)
    return ok(f"{kind}: cpuset and memory, writable")
