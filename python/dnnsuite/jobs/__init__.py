# SPDX-License-Identifier: MIT
"""Training workloads by name: `FusedJob`, of which many train as one array, and `PlainJob`, of one plain model.

A job's own module is imported when it is asked for. `Job` and `Training` are earlier names of `FusedJob` and
`PlainJob`, and stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._fused_job import FusedJob as FusedJob
from ._workload import JobConfig as JobConfig
from ._workload import Workload as Workload
from ._workload import get as get
from ._workload import names as names
from ._workload import register as register

if TYPE_CHECKING:
    from ._plain_job import PlainJob, SeedUnit

    Training = PlainJob

Job = FusedJob

__all__ = [
    "FusedJob", "Job", "JobConfig", "PlainJob", "SeedUnit", "Training", "Workload", "get", "names", "register",
]  # fmt: skip
_OF_PLAIN_JOBS = {"PlainJob": "PlainJob", "SeedUnit": "SeedUnit", "Training": "PlainJob"}


def __getattr__(name: str) -> Any:  # these bring torch along
    if name in _OF_PLAIN_JOBS:
        from . import _plain_job

        return getattr(_plain_job, _OF_PLAIN_JOBS[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
