# SPDX-License-Identifier: MIT
"""Figures of summarised results, and the one way to save a figure."""

from ._style import DPI, Drawn, Request, comparison, convergence, save, svg
from ._sweep import importance, sweep
from ._throughput import batch_sizes, hfta, machine_load, partially_fused, rates, throughput, weak_scaling

__all__ = [
    "DPI", "Drawn", "Request", "batch_sizes", "comparison", "convergence", "hfta", "importance", "machine_load",
    "partially_fused", "rates", "save", "svg", "sweep", "throughput", "weak_scaling",
]  # fmt: skip
