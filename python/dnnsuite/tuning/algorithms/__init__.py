# SPDX-License-Identifier: MIT
"""Algorithms of a sweep: which configurations to try, and for how long."""

from .base import PBT, Algorithm, Decision, Grid, Listed, Order, Plan, Random, Setting
from .halving import ASHA, Hyperband, SuccessiveHalving, hyperband_rungs
from .optuna_search import OptunaSearch

__all__ = [
    "ASHA", "PBT", "Algorithm", "Decision", "Grid", "Hyperband", "Listed", "OptunaSearch", "Order", "Plan",
    "Random", "Setting", "SuccessiveHalving", "hyperband_rungs",
]  # fmt: skip
