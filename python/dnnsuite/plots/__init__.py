# SPDX-License-Identifier: MIT
"""Figures of summarised results, and the one way to save a figure."""

from ._batch_sizes import batch_sizes, weak_scaling
from ._comparison import comparison, convergence
from ._style import DPI, Drawn, Request, save, svg
from ._sweep import importance, sweep
from ._throughput import hfta, machine_load, partially_fused, rates, throughput

__all__ = [
    "DPI", "Drawn", "Request", "batch_sizes", "comparison", "convergence", "hfta", "importance", "machine_load",
    "partially_fused", "rates", "save", "svg", "sweep", "throughput", "weak_scaling",
]  # fmt: skip
