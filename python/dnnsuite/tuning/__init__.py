# SPDX-License-Identifier: MIT
"""Hyper-parameter searches: `dnnsuite.sweep` trains configurations and returns a table and the best models."""

from .algorithms import (
    ASHA,
    PBT,
    Algorithm,
    Decision,
    Grid,
    Hyperband,
    Listed,
    OptunaSearch,
    Order,
    Random,
    Setting,
    SuccessiveHalving,
    hyperband_rungs,
)
from .callbacks import Event, MLflow, TensorBoard, WandB
from .job import JobSweep
from .result import Sweep
from .space import Choice, Int, LogUniform, Uniform
from .sweep import sweep

__all__ = [
    "ASHA", "PBT", "Algorithm", "Choice", "Decision", "Event", "Grid", "Hyperband", "Int", "JobSweep", "Listed",
    "LogUniform", "MLflow", "OptunaSearch", "Order", "Random", "Setting", "SuccessiveHalving", "Sweep", "TensorBoard",
    "Uniform", "WandB", "hyperband_rungs", "sweep",
]  # fmt: skip
