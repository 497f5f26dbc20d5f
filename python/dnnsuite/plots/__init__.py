# SPDX-License-Identifier: MIT
"""Figures of summarised results, and the one way to save a figure."""

from ._batch_sizes import batch_sizes as batch_sizes
from ._comparison import comparison as comparison
from ._convergence import convergence as convergence
from ._hfta import hfta as hfta
from ._machine_load import machine_load as machine_load
from ._partial import partially_fused as partially_fused
from ._request import Drawn as Drawn
from ._request import Request as Request
from ._scaling import weak_scaling as weak_scaling
from ._style import DPI as DPI
from ._style import save as save
from ._style import svg as svg
from ._throughput import rates as rates
from ._throughput import throughput as throughput

__all__ = [
    "DPI", "Drawn", "Request", "batch_sizes", "comparison", "convergence", "hfta", "machine_load",
    "partially_fused", "rates", "save", "svg", "throughput", "weak_scaling",
]  # fmt: skip
