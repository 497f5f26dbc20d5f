# SPDX-License-Identifier: MIT
"""Hyper-parameter searches: `dnnsuite.sweep` takes configurations and returns a table and the best models."""

from .algorithms import ASHA as ASHA
from .algorithms import PBT as PBT
from .algorithms import Algorithm as Algorithm
from .algorithms import Decision as Decision
from .algorithms import Grid as Grid
from .algorithms import Hyperband as Hyperband
from .algorithms import Listed as Listed
from .algorithms import OptunaSearch as OptunaSearch
from .algorithms import Order as Order
from .algorithms import Random as Random
from .algorithms import Setting as Setting
from .algorithms import SuccessiveHalving as SuccessiveHalving
from .algorithms import hyperband_rungs as hyperband_rungs
from .callbacks import Event as Event
from .callbacks import MLflow as MLflow
from .callbacks import TensorBoard as TensorBoard
from .callbacks import WandB as WandB
from .job import JobSweep as JobSweep
from .result import Sweep as Sweep
from .space import Choice as Choice
from .space import Int as Int
from .space import LogUniform as LogUniform
from .space import Uniform as Uniform
from .sweep import sweep as sweep

__all__ = [
    "ASHA", "PBT", "Algorithm", "Choice", "Decision", "Event", "Grid", "Hyperband", "Int", "JobSweep", "Listed",
    "LogUniform", "MLflow", "OptunaSearch", "Order", "Random", "Setting", "SuccessiveHalving", "Sweep", "TensorBoard",
    "Uniform", "WandB", "hyperband_rungs", "sweep",
]  # fmt: skip
