# SPDX-License-Identifier: MIT
"""Training workloads by name. A job's own module is imported when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._job import Job as Job
from ._workload import JobConfig as JobConfig
from ._workload import Workload as Workload
from ._workload import get as get
from ._workload import names as names
from ._workload import register as register

if TYPE_CHECKING:
    from ._training import SeedUnit, Training

__all__ = ["Job", "JobConfig", "SeedUnit", "Training", "Workload", "get", "names", "register"]


def __getattr__(name: str) -> Any:  # these two bring torch along
    if name in ("SeedUnit", "Training"):
        from . import _training

        return getattr(_training, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
