# SPDX-License-Identifier: MIT
"""Roofline model: peaks of this machine's CPUs, and operators relative to them.

Williams, Waterman, Patterson: Roofline, CACM 52(4), 2009. The roofs are measured, not taken from a data sheet.
"""

from ._contention import Contention, probe_contention
from ._model import Roofline, bound_s
from ._plot import draw
from .peaks import Peaks, measure_peaks

__all__ = ["Contention", "Peaks", "Roofline", "bound_s", "draw", "measure_peaks", "probe_contention"]
