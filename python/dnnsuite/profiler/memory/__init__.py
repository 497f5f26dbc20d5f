# SPDX-License-Identifier: MIT
"""Memory of training by use: weights, gradients, optimizer state, feature maps, and the rest."""

from ._by_class import CLASSES, FeatureMaps, MemoryInstrument, begin_peak, level, stored_bytes
from ._profiler import Profiler

__all__ = ["CLASSES", "FeatureMaps", "MemoryInstrument", "Profiler", "begin_peak", "level", "stored_bytes"]
