# SPDX-License-Identifier: MIT
"""Advice before a sweep: which way of training many models pays here, with how many at once, and what it costs.

:func:`advise` measures a few steps of one plain model and of arrays of 1, 2 and 4 models; the rest is predicted.
"""

from .advice import Advice, Curve, Point
from .front import advise, advise_job

__all__ = ["Advice", "Curve", "Point", "advise", "advise_job"]
