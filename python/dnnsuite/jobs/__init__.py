# SPDX-License-Identifier: MIT
"""Training workloads by name: a `FusedJob` can train many models as one array, a `PlainJob` has one plain model.

`declare` makes a fused job of a `FusedWorkload`, which is written for one plain model. A job's module is imported when
the job is asked for. `Job` and `Training`, earlier names of `FusedJob` and `PlainJob`, stay.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._fused_job import FusedJob as FusedJob
from ._workload import JobConfig as JobConfig
from ._workload import Workload as Workload
from ._workload import get as get
from ._workload import names as names
from ._workload import register as register
from .fused_workload import Batches as Batches
from .fused_workload import FusedWorkload as FusedWorkload
from .fused_workload import Made as Made
from .fused_workload import Preset as Preset

if TYPE_CHECKING:
    from ._plain_job import PlainJob, SeedUnit
    from .declared_job import DeclaredJob, declare, widened

    Training = PlainJob

Job = FusedJob

__all__ = [
    "Batches", "DeclaredJob", "FusedJob", "FusedWorkload", "Job", "JobConfig", "Made", "PlainJob", "Preset", "SeedUnit",
    "Training", "Workload", "declare", "get", "names", "register", "widened",
]  # fmt: skip
_HOME_OF = {
    "DeclaredJob": (".declared_job", "DeclaredJob"),
    "PlainJob": ("._plain_job", "PlainJob"),
    "SeedUnit": ("._plain_job", "SeedUnit"),
    "Training": ("._plain_job", "PlainJob"),
    "declare": (".declared_job", "declare"),
    "widened": (".declared_job", "widened"),
}


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        module, own = _HOME_OF[name]
        return getattr(importlib.import_module(module, __name__), own)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
