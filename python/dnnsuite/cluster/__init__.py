# SPDX-License-Identifier: MIT
"""Plans on a cluster: each part of a plan is a task of its scheduler, on whatever node that gives it."""

from .submit import CLUSTERS, ClusterPlan, Part, adopt_step, run_parts

__all__ = ["CLUSTERS", "ClusterPlan", "Part", "adopt_step", "run_parts"]
