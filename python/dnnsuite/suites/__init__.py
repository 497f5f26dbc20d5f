# SPDX-License-Identifier: MIT
"""The benchmark suite. Its jobs run side by side, as if several users shared the machine; records are complete or
absent.

`Settings` is a shorter name of :class:`SuiteSettings`.
"""

from .._runs.folder import CLUSTER_FILE
from ..cluster import CLUSTERS
from ._on_cluster import run_on_cluster
from ._run import SUITE_FILE, Finished, prepare, run, run_suite
from ._settings import SuiteSettings
from ._suite import PRESETS, Suite
from .mila import SUITES

Settings = SuiteSettings

__all__ = [
    "CLUSTERS", "CLUSTER_FILE", "PRESETS", "SUITES", "SUITE_FILE", "Finished", "Settings", "Suite", "SuiteSettings",
    "prepare", "run", "run_on_cluster", "run_suite",
]  # fmt: skip
