# SPDX-License-Identifier: MIT
"""Convergence of a fused array against its models alone: losses of every iteration, a figure, and a verdict."""

from .plan import ConvergenceReport as ConvergenceReport
from .plan import run as run
from .settings import ConvergenceSettings as ConvergenceSettings
from .verdict import Verdict as Verdict
from .verdict import judge as judge

__all__ = ["ConvergenceReport", "ConvergenceSettings", "Verdict", "judge", "run"]
