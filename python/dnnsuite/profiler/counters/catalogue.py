# SPDX-License-Identifier: MIT
"""CUPTI: a library that works without a driver, the metrics of every chip, and the counters of a GPU.

Not every version works without a driver: 13.0 and 13.1 list and plan. 13.2 ends the process at its first call, 13.3 to
13.5 answer "unknown error" to each. So each is tried in another process first, and the first that answers is opened.
"""

from __future__ import annotations

import ctypes
import fnmatch
import functools
import os
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..._C import CounterDevice, CounterHost, RangeCounters, SampledCounters, counter_chips, cupti_version
from ...errors import Error, Unavailable, did_you_mean, some_of
from ...host import register_vendor_folders, vendor_folders

LIBRARY = "libcupti.so.13"
REMEDY = "pip install 'dnnsuite[counters]', whose CUPTI 13.1 needs no driver, or install NVIDIA's driver"
_PROBE = """
import ctypes, sys
version = ctypes.c_uint32()
status = ctypes.CDLL(sys.argv[1]).cuptiGetVersion(ctypes.byref(version))
print(status or version.value)
sys.exit(status != 0)
"""
_PROBE_TIMEOUT_S = 60


@functools.cache
def ready() -> None:
    """Open a CUPTI that answers. Idempotent; call before asking for names and plans.

    Raises:
        Unavailable: there is no driver, and the CUPTI there is answers nothing without one.
    """
    register_vendor_folders()
    with suppress(OSError):  # there is no driver
        ctypes.CDLL("libcuda.so.1")
        return
    found = candidates()
    for path in found:
        if version_of(path) is not None:
            ctypes.CDLL(str(path))  # the copy that the process has is the one that is used
            return
    if found:
        tried = ", ".join(map(str, found))
        raise Unavailable("CUPTI answers nothing here: it needs NVIDIA's driver", tried, REMEDY)


def candidates() -> list[Path]:
    """Return the copies there are, in the order in which they would be opened; only the process's own if it has one."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        loaded = {line.split(maxsplit=5)[5].strip() for line in maps if LIBRARY in line}
    if loaded:
        return [Path(path) for path in sorted(loaded)]
    return [folder / LIBRARY for folder in vendor_folders() if (folder / LIBRARY).is_file()]


def version_of(path: Path | str) -> int | None:
    """Return the version of a copy of CUPTI, asked in another process, which it may end; None when it does not say."""
    command = [sys.executable, "-I", "-S", "-c", _PROBE, str(path)]
    try:
        asked = subprocess.run(command, capture_output=True, timeout=_PROBE_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return None
    return int(asked.stdout) if asked.returncode == 0 else None


TYPES = ("counter", "ratio", "throughput")


@dataclass(frozen=True)
class Metric:
    """A metric without its submetric.

    Attributes:
        name: its full name.
        type: kind of the metric.
        unit: unit of a counter's value; "" for a pure number.
        hardware_unit: part of the GPU where it is counted.
        description: text from CUPTI.
    """

    name: str
    type: str
    unit: str
    hardware_unit: str
    description: str


@functools.cache
def host(chip: str, collection: str = "ranges") -> CounterHost:
    """Open the chip's metrics in CUPTI.

    Raises:
        Unavailable: there is no CUPTI here, or it cannot count on this chip; the message names the chips there are.
        InvalidArgument: another collection than "ranges" and "sampling".
    """
    ready()
    try:
        return CounterHost(chip, collection)
    except Unavailable:
        known = counter_chips()
        if chip in known:  # CUPTI knows it, and cannot count there
            raise
        hint = did_you_mean(chip, known)
        raise Unavailable(
            f"CUPTI does not know the chip {chip}{hint}; it knows {some_of(known, '`dnnsuite metrics roles`')}"
        ) from None


@functools.lru_cache(maxsize=8192)
def accepts(metric: str, chip: str, collection: str = "ranges") -> bool:
    """Return True if a full name, with its submetric, can be collected on the chip."""
    return host(chip, collection).accepts(metric)


@functools.lru_cache(maxsize=8192)
def passes(metrics: tuple[str, ...], chip: str, collection: str = "ranges") -> int | None:
    """Return the number of runs of the same work that collect full names together; None if they cannot be mixed."""
    config = host(chip, collection).configure(list(metrics))
    return config[0] if config else None


def version() -> int:
    """Return CUPTI's version, 130001 for CUDA 13.0. Raises Unavailable without CUPTI."""
    ready()
    return cupti_version()


@functools.cache
def chips(collection: str = "ranges") -> tuple[str, ...]:
    """List the chips with counters of this collection, in CUPTI's order. Raises Unavailable without CUPTI."""
    ready()
    found = []
    for chip in counter_chips():
        with suppress(Unavailable):  # CUPTI has heard of it, GV11B say, but cannot count there
            host(chip, collection)
            found.append(chip)
    return tuple(found)


@functools.cache
def metric_types(chip: str, collection: str = "ranges") -> dict[str, str]:
    """Return the type of each metric of the chip (counter, ratio or throughput) by its name without submetric."""
    known = host(chip, collection)
    return {name: kind for kind in TYPES for name in known.metrics(kind)}


def metrics(chip: str, pattern: str = "*", collection: str = "ranges") -> list[Metric]:
    """List the chip's metrics whose name matches a shell pattern (`sm__pipe_*`) or, without wildcards, contains it."""
    if not any(wild in pattern for wild in "*?["):
        pattern = f"*{pattern}*"
    known = host(chip, collection)
    found = []
    for name in sorted(fnmatch.filter(metric_types(chip, collection), pattern)):
        about = known.describe(name)
        found.append(
            Metric(name, about["type"], about["unit"], about["hardware_unit"], " ".join(about["description"].split()))
        )
    return found


def unit_of(metric: str, chip: str, collection: str = "ranges") -> str:
    """Return the unit of a full metric name's values: "%", "byte/s"; "" for a pure number."""
    return with_suffix(host(chip, collection).describe(metric)["unit"], metric)


def with_suffix(unit: str, metric: str) -> str:
    """Return the unit of a metric's values: CUPTI's, completed from the name, because not all versions give the whole
    unit.

    >>> with_suffix("byte", "dram__bytes_read.sum.per_second"), with_suffix("", "sm__throughput.avg.pct")
    ('byte/s', '%')
    """
    for long, short in (("percent", "%"), ("nanosecond", "ns"), ("second", "s")):
        unit = unit.replace(long, short)
    last = metric.rpartition(".")[2]
    if last.startswith("pct"):
        return "%"
    if last == "per_second" and not unit.endswith("/s"):
        return f"{unit}/s"
    if last.startswith("per_cycle") and "cycle" not in unit.partition("/")[2]:
        return f"{unit}/cycle"
    return unit


class Backend:
    """Counters of a GPU by CUPTI, as the instruments use them."""

    def device(self, ordinal: int) -> CounterDevice:
        """Open the GPU, which has a `chip`. Raises Unavailable without a GPU, or where its counters are unavailable."""
        register_vendor_folders()
        return CounterDevice(ordinal)

    def ranges(self, device: Any, groups: Sequence[Sequence[str]], kernels: bool, max_ranges: int) -> RangeCounters:
        """Open a session that counts: start, mark, step, stop, close, take, passes, steps_left_out."""
        return RangeCounters(device, [list(group) for group in groups], kernels, max_ranges)

    def sampled(self, device: Any, metrics: Sequence[str], **options: Any) -> SampledCounters:
        """Open a session that samples: start, stop, close, take."""
        return SampledCounters(device, list(metrics), **options)

    def evaluate(self, chip: str, image: bytes, metrics: Sequence[str], collection: str = "ranges") -> dict[str, Any]:
        """Return names and values [ranges or samples][metrics] of a counter-data image."""
        return host(chip, collection).evaluate(image, list(metrics))


CUPTI = Backend()


_CAP_SYS_ADMIN = 21
_PARAMS = "proc/driver/nvidia/params"
_ALLOW = "load the driver's module with NVreg_RestrictProfilingToAdminUsers=0, or give the process CAP_SYS_ADMIN"
_CONDITIONS = {
    "architecture": ("the GPU is older than Volta", "use a GPU of compute capability 7.0 or newer"),
    "sli": ("the GPU is in an SLI group", "switch SLI off"),
    "vgpu": ("the virtual GPU has no counters, or its host switched them off", "have the host enable profiling for it"),
    "confidential_compute": ("the GPU runs in confidential computing", "measure in devtools or ordinary mode"),
    "cmp": ("a mining processor (CMP) has no counters", "use another GPU"),
    "wsl": ("this WSL does not pass the counters on", "measure under Linux"),
}


@dataclass(frozen=True)
class Feature:
    """A feature of the counters: whether it is available, and otherwise the reason and the remedy."""

    name: str
    available: bool
    reason: str = ""
    remedy: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        return asdict(self)


def support(device: int = 0, root: Path = Path("/"), backend: Backend = CUPTI) -> list[Feature]:
    """List the features of counters on this machine. A missing one has its reason; no exception is raised.

    Planning (names, passes, evaluation of recorded images) needs only CUPTI. `ranges` and `sampling` need a GPU whose
    counters no other process is reading, which is known only when a session is opened (HARDWARE_BUSY).
    """
    try:
        planning = Feature("planning", True, f"CUPTI {version()}")
    except Unavailable as missing:
        planning = Feature("planning", False, missing.what, missing.remedy)
    features = [planning, permission(root), _mps(root, os.environ), _mig(os.environ)]
    try:
        found = backend.device(device)
        interfaces = found.support()
    except Unavailable as missing:
        lacking = [Feature(name, False, missing.what, missing.remedy) for name in ("ranges", "sampling")]
        return features + lacking
    except Error as error:
        return features + [Feature(name, False, str(error)) for name in ("ranges", "sampling")]
    return features + [_interface(one) for one in interfaces]


def _interface(found: Mapping[str, Any]) -> Feature:
    name = found["interface"]
    if found["overall"] == "supported":
        return Feature(name, True)
    against = [condition for condition, level in found["conditions"].items() if level != "supported"]
    reasons = "; ".join(_CONDITIONS[condition][0] for condition in against if condition in _CONDITIONS)
    remedies = "; ".join(_CONDITIONS[condition][1] for condition in against if condition in _CONDITIONS)
    return Feature(name, False, reasons or "CUPTI does not say why", remedies)


def permission(root: Path = Path("/")) -> Feature:
    """Check the driver's permission to read counters: `RmProfilingAdminOnly`, and the process's CAP_SYS_ADMIN."""
    try:
        params = dict(line.split(":", 1) for line in (root / _PARAMS).read_text().splitlines() if line.count(":") == 1)
        status = (root / "proc/self/status").read_text()
    except OSError as error:
        return Feature("permission", False, f"no NVIDIA driver: {error.filename} cannot be read", "install the driver")
    if params.get("RmProfilingAdminOnly", "1").strip() == "0":
        return Feature("permission", True, "the driver lets every user profile")
    masks = [line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")]
    if masks and int(masks[0], 16) >> _CAP_SYS_ADMIN & 1:
        return Feature("permission", True, "the process has CAP_SYS_ADMIN")
    return Feature(
        "permission", False, f"RmProfilingAdminOnly is 1 in /{_PARAMS}, and CAP_SYS_ADMIN is missing", _ALLOW
    )


def _mps(root: Path, environment: Mapping[str, str]) -> Feature:
    folder = root / environment.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps").lstrip("/")
    try:
        runs = stat.S_ISFIFO((folder / "control").stat().st_mode) or (folder / "control").is_socket()
    except OSError:
        runs = False
    if runs:
        return Feature(
            "no_mps",
            False,
            f"an MPS server is at {folder}: counters cannot be read under it",
            "stop it (echo quit | nvidia-cuda-mps-control), or set CUDA_MPS_PIPE_DIRECTORY to an empty folder",
        )
    return Feature("no_mps", True)


def _mig(environment: Mapping[str, str]) -> Feature:
    visible = environment.get("CUDA_VISIBLE_DEVICES", "")
    if "MIG-" in visible:
        return Feature(
            "no_mig",
            False,
            f"CUDA_VISIBLE_DEVICES={visible} is a MIG instance: what it shares with others is NaN",
            "use an instance that owns its GPU instance, or the whole GPU",
        )
    return Feature("no_mig", True)
