# SPDX-License-Identifier: MIT
"""Algorithms of a sweep: which configurations to try, and for how long."""

from .base import Algorithm as Algorithm
from .base import Decision as Decision
from .base import Grid as Grid
from .base import Listed as Listed
from .base import Order as Order
from .base import Plan as Plan
from .base import Random as Random
from .base import Setting as Setting
from .halving import ASHA as ASHA
from .halving import Hyperband as Hyperband
from .halving import SuccessiveHalving as SuccessiveHalving
from .halving import hyperband_rungs as hyperband_rungs
from .optuna_search import OptunaSearch as OptunaSearch
from .pbt import PBT as PBT

__all__ = [
    "ASHA", "PBT", "Algorithm", "Decision", "Grid", "Hyperband", "Listed", "OptunaSearch", "Order", "Plan",
    "Random", "Setting", "SuccessiveHalving", "hyperband_rungs",
]  # fmt: skip
