# SPDX-License-Identifier: MIT
"""Training steps without Python: recorded once, then run as a list of operators or as a CUDA graph."""

from .step import CapturedStep

__all__ = ["CapturedStep"]
