# SPDX-License-Identifier: MIT
"""Memory of training by use: weights, gradients, optimizer state, feature maps and the rest."""

from ._by_class import CLASSES, FeatureMaps, MemoryInstrument, begin_peak, level, stored_bytes

__all__ = ["CLASSES", "FeatureMaps", "MemoryInstrument", "begin_peak", "level", "stored_bytes"]
