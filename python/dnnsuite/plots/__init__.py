# SPDX-License-Identifier: MIT
"""Figures of summarised results, and the one way to save a figure."""

from ._batch_sizes import batch_sizes
from ._comparison import comparison
from ._convergence import convergence
from ._hfta import hfta
from ._machine_load import machine_load
from ._partial import partially_fused
from ._request import Drawn, Request
from ._scaling import weak_scaling
from ._style import DPI, save, svg
from ._sweep import importance, sweep
from ._throughput import rates, throughput

__all__ = [
    "DPI", "Drawn", "Request", "batch_sizes", "comparison", "convergence", "hfta", "importance", "machine_load",
    "partially_fused", "rates", "save", "svg", "sweep", "throughput", "weak_scaling",
]  # fmt: skip
