# SPDX-License-Identifier: MIT
"""The benchmark suite: its jobs, run the way several users share a machine, each run recorded whole or not at all.

`Settings` is a shorter name of :class:`SuiteSettings`.
"""

from .._runs.folder import CLUSTER_FILE as CLUSTER_FILE
from ..cluster import CLUSTERS as CLUSTERS
from ._on_cluster import run_on_cluster as run_on_cluster
from ._run import SUITE_FILE as SUITE_FILE
from ._run import Finished as Finished
from ._run import prepare as prepare
from ._run import run as run
from ._run import run_suite as run_suite
from ._settings import SuiteSettings as SuiteSettings
from ._suite import PRESETS as PRESETS
from ._suite import Suite as Suite
from .mila import SUITES as SUITES

Settings = SuiteSettings

__all__ = [
    "CLUSTERS", "CLUSTER_FILE", "PRESETS", "SUITES", "SUITE_FILE", "Finished", "Settings", "Suite", "SuiteSettings",
    "prepare", "run", "run_on_cluster", "run_suite",
]  # fmt: skip
