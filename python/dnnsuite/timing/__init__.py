# SPDX-License-Identifier: MIT
"""The timing core: one clock, a step timer, and the statistics that turn samples into a number with an interval.

Written in C++ (`cpp/base`, `cpp/host`); sees numpy arrays without copying them.
"""

from .._C import (
    Interval,
    RunningStatistics,
    StepTimer,
    Warmup,
    batch_means,
    mser5,
    now_ns,
    rate,
    student_t,
)
from ._repeat import RepeatNumber
from ._spans import Span, Spans, decorated

__all__ = [
    "Interval", "RepeatNumber", "RunningStatistics", "Span", "Spans", "StepTimer", "Warmup", "batch_means", "decorated",
    "mser5", "now_ns", "rate", "student_t",
]  # fmt: skip
