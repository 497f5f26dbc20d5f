# SPDX-License-Identifier: MIT
"""Memory of training by use: weights, gradients, optimizer state, feature maps, and the rest."""

from ._by_class import MemoryInstrument
from ._classes import CLASSES, FeatureMaps, stored_bytes
from ._process import begin_peak, level

__all__ = ["CLASSES", "FeatureMaps", "MemoryInstrument", "begin_peak", "level", "stored_bytes"]
