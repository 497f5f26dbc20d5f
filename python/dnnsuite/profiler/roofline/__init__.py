# SPDX-License-Identifier: MIT
"""What this machine's CPUs can do at most, and how near to it operators come: the roofline model.

Williams, Waterman, Patterson: Roofline, CACM 52(4), 2009. The roofs are measured, not taken from a data sheet.
"""

from ._contention import Contention, probe_contention
from ._model import Roofline
from ._plot import draw
from .peaks import Peaks, measure_peaks

__all__ = ["Contention", "Peaks", "Roofline", "draw", "measure_peaks", "probe_contention"]
