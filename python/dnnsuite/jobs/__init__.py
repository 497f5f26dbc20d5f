# SPDX-License-Identifier: MIT
"""Training workloads by name. A job's own module is imported when it is asked for."""

from ._job import Job as Job
from ._job import JobConfig as JobConfig
from ._job import get as get
from ._job import names as names
from ._job import register as register

__all__ = ["Job", "JobConfig", "get", "names", "register"]
