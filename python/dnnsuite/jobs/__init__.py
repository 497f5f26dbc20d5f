# SPDX-License-Identifier: MIT
"""Training workloads by name. A `Workload` is one value that every command takes: `run`, `workflow`, `tune`, ...

`declare` makes a `Job` of it, which trains one plain model or many as one array. A job that no value can describe is a
separate class. The module of a job is imported when the job is requested.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._job import Job as Job
from ._job import JobConfig as JobConfig
from ._job import get as get
from ._job import names as names
from ._job import register as register
from .workload import Batches as Batches
from .workload import Card as Card
from .workload import Group as Group
from .workload import Made as Made
from .workload import Metric as Metric
from .workload import Preset as Preset
from .workload import Rate as Rate
from .workload import Workload as Workload

if TYPE_CHECKING:
    from ..models import widened
    from .declared_job import DeclaredJob, declare
    from .model_parts import Trainee

__all__ = [
    "Batches", "Card", "DeclaredJob", "Group", "Job", "JobConfig", "Made", "Metric", "Preset", "Rate", "Trainee",
    "Workload", "declare", "get", "names", "register", "widened",
]  # fmt: skip
_HOME_OF = {
    "DeclaredJob": (".declared_job", "DeclaredJob"),
    "Trainee": (".model_parts", "Trainee"),
    "declare": (".declared_job", "declare"),
    "widened": ("..models", "widened"),
}


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        module, own = _HOME_OF[name]
        return getattr(importlib.import_module(module, __name__), own)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
