# SPDX-License-Identifier: MIT
"""What the memory of training is used for: weights, gradients, optimizer state, feature maps, and the rest."""

from ._by_class import MemoryInstrument
from ._classes import CLASSES, FeatureMaps, stored_bytes
from ._profiler import Profiler

__all__ = ["CLASSES", "FeatureMaps", "MemoryInstrument", "Profiler", "stored_bytes"]
