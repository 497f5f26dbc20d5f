# SPDX-License-Identifier: MIT
"""Convergence of a fused array against its models alone: losses of every iteration, a figure, and a verdict."""

from .plan import ConvergenceReport, ConvergenceSettings, run
from .verdict import Verdict, judge

__all__ = ["ConvergenceReport", "ConvergenceSettings", "Verdict", "judge", "run"]
