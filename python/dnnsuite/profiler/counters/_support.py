# SPDX-License-Identifier: MIT
"""Obstacles to reading a GPU's counters here, each with its remedy."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...errors import Error, Unavailable
from . import catalogue
from .catalogue import CUPTI, Backend

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
    """Feature of the counters: available or not, the reason, and the remedy."""

    name: str
    available: bool
    reason: str = ""
    remedy: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        return asdict(self)


def support(device: int = 0, root: Path = Path("/"), backend: Backend = CUPTI) -> list[Feature]:
    """List the features of counters here; a missing one has its reason, nothing is raised. Planning (names, passes,
    evaluation of recorded images) needs CUPTI only; `ranges` and `sampling` need a GPU whose counters no other process
    reads, which shows only when a session is opened (HARDWARE_BUSY).
    """
    features = [_planning(), permission(root), _mps(root, os.environ), _mig(os.environ)]
    try:
        found = backend.device(device)
        interfaces = found.support()
    except Unavailable as missing:
        lacking = [Feature(name, False, missing.what, missing.remedy) for name in ("ranges", "sampling")]
        return features + lacking
    except Error as error:
        return features + [Feature(name, False, str(error)) for name in ("ranges", "sampling")]
    return features + [_interface(one) for one in interfaces]


def _planning() -> Feature:
    try:
        return Feature("planning", True, f"CUPTI {catalogue.version()}")
    except Unavailable as missing:
        return Feature("planning", False, missing.what, missing.remedy)


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
