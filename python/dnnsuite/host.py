# SPDX-License-Identifier: MIT
"""The machine, the part of it that this process may use, and where its vendors' libraries lie.

Reads files; imports nothing slow.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import platform
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_HALF_UNITS = {
    "bf16": {"avx512_bf16", "amx_bf16", "bf16"}, "fp16": {"avx512_fp16", "amx_fp16", "asimdhp"},
}  # fmt: skip


@dataclass(frozen=True)
class Gpu:
    """One NVIDIA GPU as its driver describes it."""

    name: str
    memory_bytes: int
    driver: str
    uuid: str = ""
    address: str = ""  # on the PCI bus, as /sys/bus/pci/devices names it


def num_cpus() -> int:
    """CPUs this process may run on (a cpuset and an affinity mask count; a quota does not)."""
    return len(os.sched_getaffinity(0))


def num_threads() -> int:
    """CPU threads to use where nobody says how many: `OMP_NUM_THREADS`, or the CPUs where those are fewer."""
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return max(1, min(int(asked), num_cpus())) if asked.isdigit() else num_cpus()


def available_memory_bytes(root: Path = Path("/")) -> int:
    """Bytes that can be allocated now: MemAvailable, or less where a control group allows less.

    Args:
        root: root folder of the files to read; tests give another one.
    """
    found = _first(root / "proc/meminfo", r"MemAvailable:\s+(\d+) kB")
    available = int(found) * 1024 if found else os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    rooms = [_room_bytes(group) for group in control_groups(root)]
    return max(0, min([available, *(room for room in rooms if room is not None)]))


def memory_limit_bytes(root: Path = Path("/")) -> int | None:
    """Return the tightest memory limit of this process's control groups; None where there is none.

    Args:
        root: root folder of the files to read; tests give another one.
    """
    limits = []
    for group in control_groups(root):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = _read(group / name).strip()
            if text.isdigit() and int(text) < 1 << 60:  # v1 writes "no limit" as almost 2^63
                limits.append(int(text))
    return min(limits, default=None)


def oom_kills(root: Path = Path("/")) -> int:
    """Processes the kernel has killed for memory so far, on the machine and in this process's groups."""
    of_groups = [group / name for group in control_groups(root) for name in ("memory.events", "memory.oom_control")]
    return sum(int(_first(path, r"oom_kill (\d+)") or 0) for path in (root / "proc/vmstat", *of_groups))


def control_groups(root: Path, controller: str = "memory") -> list[Path]:
    """Return the control groups (of version 2, or 1 for this controller) this process is in, innermost first."""
    groups: list[Path] = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mounts = [root / "sys/fs/cgroup", root / "sys/fs/cgroup/unified"]
        elif controller in controllers.split(","):
            mounts = [root / "sys/fs/cgroup" / controller]
        else:
            continue
        for mount in mounts:
            leaf = mount / path.lstrip("/")
            # In a container the path may be the host's and not exist here: our own group is the mount point then.
            chain = [leaf, *leaf.parents] if leaf.is_dir() else [mount]
            groups += [group for group in chain if group == mount or mount in group.parents]
    return groups


def _room_bytes(group: Path) -> int | None:
    """Limit minus what is used and cannot be reclaimed; None where the group sets no limit."""
    for limit_name, usage_name in (
        ("memory.max", "memory.current"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        limit, usage = _read(group / limit_name).strip(), _read(group / usage_name).strip()
        if limit.isdigit() and usage.isdigit() and int(limit) < 1 << 60:  # v1 writes "no limit" as almost 2^63
            reclaimable = _first(group / "memory.stat", r"(?:total_)?inactive_file (\d+)")
            return int(limit) - int(usage) + int(reclaimable or 0)
    return None


def gpus() -> list[Gpu]:
    """Return the NVIDIA GPUs the driver shows; empty without a driver. Creates no CUDA context."""
    try:
        import pynvml  # type: ignore[import-untyped]
    except ImportError:
        return []
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return [
            Gpu(
                _text(pynvml.nvmlDeviceGetName(h)),
                int(pynvml.nvmlDeviceGetMemoryInfo(h).total),
                driver,
                _text(pynvml.nvmlDeviceGetUUID(h)),
                _text(pynvml.nvmlDeviceGetPciInfo(h).busId).lower()[-12:],  # NVML's domain has eight digits
            )
            for h in handles
        ]
    except pynvml.NVMLError:
        return []
    finally:
        pynvml.nvmlShutdown()


def vendor_folders() -> list[Path]:
    """Existing folders with vendors' libraries: wheels (`nvidia/*/lib`) first, then the toolkit of `$CUDA_HOME`."""
    spec = importlib.util.find_spec("nvidia")
    wheels = [Path(root) for root in spec.submodule_search_locations or []] if spec else []
    found = [folder for root in wheels for folder in sorted(root.glob("*/lib"))]
    toolkits = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    for toolkit in dict.fromkeys(Path(root) for root in toolkits if root):
        found += [toolkit / "lib64", toolkit / "lib", toolkit / "extras/CUPTI/lib64"]
    return [folder for folder in found if folder.is_dir()]


@functools.cache
def register_vendor_folders() -> None:
    """Register :func:`vendor_folders` with the C++ loader. Idempotent; call before opening a vendor's library."""
    from ._C import add_library_folder

    for folder in vendor_folders():
        add_library_folder(str(folder))


def torch_has_cuda() -> bool:
    """Return True if the installed torch is a CUDA build; looks for its library instead of importing it."""
    spec = importlib.util.find_spec("torch")
    folders = list(spec.submodule_search_locations or []) if spec else []
    return any((Path(folder) / "lib" / "libtorch_cuda.so").exists() for folder in folders)


def family(processes: Iterable[int]) -> Iterator[int]:
    """Yield processes, and after each of them the ones that its main thread started, and so on; none of them twice.

    It reads a file of each, not of every process of the machine. One that has left its parent is not found.
    """
    left = list(processes)
    seen: set[int] = set()
    while left:
        process = left.pop()
        if process in seen:
            continue
        seen.add(process)
        yield process
        with suppress(OSError), open(f"/proc/{process}/task/{process}/children", "rb", 0) as file:
            left += map(int, file.read().split())  # of one that has ended there is none


def load_average() -> list[float]:
    """Runnable processes, mean over 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]


def versions() -> dict[str, str]:
    """Versions of what a measurement depends on, without importing any of it."""
    found = {"python": platform.python_version(), "kernel": platform.release()}
    return found | {name: own for name in ("dnnsuite", "torch", "numpy", "triton") if (own := _installed(name))}


@functools.cache  # looked up in files, for milliseconds; a process keeps what it has imported
def _installed(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


# Processors of Arm's own design by (implementer, part), of which Linux tells no name.
_ARM = {
    ("0x41", part): f"Arm {name}"
    for part, name in {
        "0xd08": "Cortex-A72", "0xd0b": "Cortex-A76", "0xd0c": "Neoverse-N1", "0xd40": "Neoverse-V1",
        "0xd49": "Neoverse-N2", "0xd4f": "Neoverse-V2", "0xd84": "Neoverse-V3", "0xd8e": "Neoverse-N3",
    }.items()
}  # fmt: skip


def cpu_model(root: Path = Path("/")) -> str:
    """Name of the processor; on Arm that of its design, or the numbers that Linux tells.

    Args:
        root: root folder of the files to read; tests give another one.
    """
    cpuinfo = _read(root / "proc/cpuinfo")
    found = {
        name: value.strip()
        for name, value in re.findall(r"^(model name|CPU implementer|CPU part)\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    }
    if "model name" in found:
        return found["model name"]
    if "CPU part" not in found:
        return platform.machine()
    who = found.get("CPU implementer", ""), found["CPU part"]
    return _ARM.get(who, f"{platform.machine()}, implementer {who[0]}, part {who[1]}")


def computes_in(precision: str, root: Path = Path("/")) -> bool:
    """True if the CPU multiplies in a precision itself; autocast to a half one is slower than fp32 elsewhere.

    Args:
        precision: fp32, bf16 or fp16.
        root: root folder of the files to read; tests give another one.
    """
    if precision not in _HALF_UNITS:
        return True
    flags = _first(root / "proc/cpuinfo", r"(?:flags|Features)\s*:(.*)$")
    return not _HALF_UNITS[precision].isdisjoint(flags.split())


def system(root: Path = Path("/"), folder: Path = Path()) -> dict[str, str]:
    """Describe the machine beside its processors and GPUs, as a buyer is told of it; what Linux does not tell is left
    out.

    Args:
        root: root folder of the files to read; tests give another one.
        folder: folder whose file system is the storage that is named.
    """
    memory = _first(root / "proc/meminfo", r"MemTotal:\s+(\d+) kB")
    nodes = list((root / "sys/devices/system/node").glob("node[0-9]*"))
    found = {
        "memory": f"{int(memory) / 2**20:.1f} GiB" if memory else "",
        "NUMA nodes": str(len(nodes) or ""),
        "storage": _storage(root, folder.resolve()),
        "operating system": _first(root / "etc/os-release", r'PRETTY_NAME="?([^"\n]+)'),
        "kernel": _read(root / "proc/sys/kernel/osrelease").strip(),
        "governor": _read(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").strip(),
        "microcode": _first(root / "proc/cpuinfo", r"microcode\s*:\s*(\S+)"),
    }
    return {name: value for name, value in found.items() if value}


def _storage(root: Path, folder: Path) -> str:
    """Name the file system and the device that a folder lies on."""
    mounts = [line.split()[:3] for line in _read(root / "proc/self/mounts").splitlines()]
    of_folder = [mount for mount in mounts if len(mount) == 3 and folder.is_relative_to(mount[1])]
    if not of_folder:
        return ""
    device, _, kind = max(of_folder, key=lambda mount: len(Path(mount[1]).parts))
    name = Path(device).name
    disk = name if (root / "sys/block" / name).is_dir() else re.sub(r"p?\d+$", "", name)
    model = _read(root / "sys/block" / disk / "device/model").strip()
    return f"{kind} on {device}{f' ({model})' if model else ''}"


def describe() -> dict[str, Any]:
    """Return the machine as it goes into every record."""
    total = _first(Path("/proc/meminfo"), r"MemTotal:\s+(\d+) kB")
    found = system()
    return {
        "cpu_model": cpu_model(),
        "cpus": os.cpu_count(),
        "cpus_allowed": sorted(os.sched_getaffinity(0)),
        "memory_bytes": int(total) * 1024 if total else None,
        "governor": found.get("governor", "unavailable: no cpufreq"),
        "system": found,
        "gpus": [asdict(gpu) for gpu in gpus()],
    }


def _text(value: str | bytes) -> str:
    """Return a text that pynvml gives as bytes or str, depending on its version."""
    return value.decode() if isinstance(value, bytes) else value


def _first(path: Path, pattern: str) -> str:
    """Return what a pattern's group finds at the beginning of a line of a file; "" where it finds nothing."""
    found = re.search(f"^{pattern}", _read(path), re.MULTILINE)
    return found[1] if found else ""


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
