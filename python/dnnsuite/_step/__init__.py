# SPDX-License-Identifier: MIT
"""Training steps of an array: spread over threads by model, and recorded so that they run without Python."""

from .runner import StepRunner
from .threads import SubmittedStep

__all__ = ["StepRunner", "SubmittedStep"]
