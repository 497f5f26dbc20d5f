# SPDX-License-Identifier: MIT
"""Plans on a cluster: each part of a plan is a task of its scheduler, on whatever node that gives it."""

from .step import adopt_step as adopt_step
from .submit import CLUSTERS as CLUSTERS
from .submit import ClusterPlan as ClusterPlan
from .submit import Part as Part
from .submit import run_parts as run_parts

__all__ = ["CLUSTERS", "ClusterPlan", "Part", "adopt_step", "run_parts"]
