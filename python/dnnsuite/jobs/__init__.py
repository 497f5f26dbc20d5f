# SPDX-License-Identifier: MIT
"""Training workloads by name."""

from . import bert as bert
from ._job import Job as Job
from ._job import JobConfig as JobConfig
from ._job import get as get
from ._job import names as names
from ._job import register as register

__all__ = ["Job", "JobConfig", "get", "names", "register"]
