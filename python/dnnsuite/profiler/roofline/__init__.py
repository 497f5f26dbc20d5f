# SPDX-License-Identifier: MIT
"""The roofline model: peaks of this machine's CPUs, and operators relative to them.

Williams, Waterman, Patterson: Roofline, CACM 52(4), 2009. The roofs are measured, not taken from a data sheet.
"""

from ._model import Roofline, bound_s, draw
from .peaks import Contention, Peaks, measure_peaks, probe_contention

__all__ = ["Contention", "Peaks", "Roofline", "bound_s", "draw", "measure_peaks", "probe_contention"]
